# Everything runs from .venv, which these targets make by themselves from the pinned
# versions in constraints.txt. Needed beforehand: Python 3.11 or newer, and make.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := $(BIN)/python

# Tests start hundreds of processes. Without stored bytecode each of them would compile
# the package anew.
unexport PYTHONDONTWRITEBYTECODE

CONSTRAINTS ?= constraints.txt
PIP    := $(RUN) -m pip install -qq --disable-pip-version-check -c $(CONSTRAINTS)
MADE   := $(VENV)/.made
CORE   := $(VENV)/.installed-core
TEST   := $(VENV)/.installed-test
DOCS   := $(VENV)/.installed-docs
CODE   := src tests examples docs/tools docs/conf.py conftest.py $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help demo test test-gpu matrix coverage features bench lint format types \
  layout hooks dist docs docs-serve docs-browser clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /|/' \
	  | awk -F'|' '{ printf "  make %-12s %s\n", $$1, $$2 }'

demo: $(CORE) ## Train on one replica and on eight; compare the loss curves
	@$(RUN) examples/digits.py

# Tests with several processes wait more than they compute. They run beside the others,
# and so do the doctests and the folders in ASIDE, so that all three take about as long;
# what these two print comes last. A shell has its background jobs ignore interrupts, and
# some of these tests send them.
BESIDE := import signal, sys, pytest; \
  signal.signal(signal.SIGINT, signal.default_int_handler); \
  sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
ASIDE  := tests/unit/training tests/unit/machines tests/integration tests/porting \
  tests/repositories tests/zoo
test: $(TEST) ## Run every test and doctest
	@logs=$$(mktemp -d); \
	$(RUN) -c '$(BESIDE)' tests/multiprocess > $$logs/1 2>&1 & first=$$!; \
	$(RUN) -c '$(BESIDE)' $(ASIDE) src > $$logs/2 2>&1 & second=$$!; \
	$(RUN) -m pytest tests --ignore=tests/multiprocess $(addprefix --ignore=,$(ASIDE)); \
	failed=$$?; \
	wait $$first || failed=1; \
	wait $$second || failed=1; \
	cat $$logs/*; rm -rf $$logs; \
	exit $$failed

# What one GPU can run. For an environment of your own, whose JAX sees the GPU:
# make test-gpu RUN=python3
GPU    := tests/parity tests/integration $(addprefix tests/unit/,execution state values \
  strategies training estimator saving input/api input/distribution)
test-gpu: $(if $(filter $(BIN)/python,$(RUN)),$(TEST)) ## Run the tests that fit on a GPU
	@$(RUN) -m pytest --platform=gpu $(GPU)

matrix: ## Run every test on the oldest JAX, on the newest 0.11 and on the newest
	@.ci/matrix

coverage: $(TEST) ## Run every test; say which lines none of them reaches
	@rm -rf build/coverage
	@$(RUN) -m coverage run -m pytest -q
	@$(RUN) -m coverage combine -q
	@$(RUN) -m coverage html -q
	@$(RUN) -m coverage report

features: $(TEST) ## Run the tests; list each row of the feature table with its proof
	@$(RUN) -m pytest -q --features

bench: $(TEST) ## Compare with the same programs written in plain JAX
	@$(RUN) benchmarks/run.py
	@$(RUN) benchmarks/eager.py
	@$(RUN) benchmarks/logical.py
	@$(RUN) benchmarks/input.py
	@$(RUN) benchmarks/workers.py
	@$(RUN) benchmarks/keras_fit.py
	@$(RUN) benchmarks/tape.py --device CPU:0 --small

lint: $(TEST) ## Check style and formatting
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)

format: $(TEST) ## Rewrite the code in the project's format
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

types: $(TEST) ## Check types
	@$(BIN)/mypy

layout: $(TEST) ## Check that imports go one way
	@$(BIN)/lint-imports --no-logo

hooks: $(TEST) ## Have git check every commit as .pre-commit-config.yaml says
	@$(PIP) -e '.[hooks]'
	@$(BIN)/pre-commit install

# Blocks of pages run first; what they print is stored in build/docs/results and used until
# a page, the package or a version changes. The site is build/docs/html.
SITE   := build/docs/html
docs: $(DOCS) ## Build the documentation; every example in it runs
	@$(RUN) docs/tools/run_pages.py
	@$(RUN) -m sphinx -W --keep-going -q -j 2 -d build/docs/trees docs $(SITE)
	@echo "The documentation is in $(SITE)/index.html"

docs-serve: docs ## Build the documentation and serve it on this machine
	@$(RUN) -m http.server --bind 127.0.0.1 --directory $(SITE) 8000

docs-browser: docs ## Try the documentation in Chromium, which must be installed
	@$(RUN) docs/tools/browser.py $(SITE)

dist: $(MADE) pyproject.toml ## Build the sdist and the wheel, and try the wheel out
	@$(PIP) build twine
	@PYTHON=$(RUN) .ci/dist

clean: ## Remove every environment and every cache
	rm -rf $(VENV) .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache src/*.egg-info
	find src tests examples benchmarks -name __pycache__ -type d -prune \
	  -exec rm -rf {} + 2>/dev/null || true

$(MADE):
	@$(PYTHON) -c 'import sys; v = sys.version_info; \
	  sys.exit(v < (3, 11) and "unisono needs Python 3.11 or newer; %s is %d.%d. \
	Name another one: make PYTHON=python3.12 ..." % (sys.executable, *v[:2]))'
	@echo "Making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(CORE): $(MADE) pyproject.toml $(CONSTRAINTS)
	@echo "Installing unisono and what it needs (once; a few minutes) ..."
	@$(PIP) -e .
	@touch $@

$(TEST): $(CORE)
	@echo "Installing the test tools (once) ..."
	@$(PIP) -e '.[test]'
	@touch $@

$(DOCS): $(CORE)
	@echo "Installing what builds the documentation (once) ..."
	@$(PIP) -e '.[docs]'
	@touch $@
