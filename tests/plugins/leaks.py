"""Fails tests that leave a thread, an environment variable or a scope behind."""

import os
import threading

import pytest

import unisono
from tests.threads import is_over

# Pytest itself writes these between the phases of a test.
_NOT_OURS = frozenset({"PYTEST_CURRENT_TEST", "PYTEST_VERSION"})
# OpenCV and PyTorch, which Keras loads if they are there, write these on import.
_NOT_OURS |= {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "LD_LIBRARY_PATH"}

# How long a thread that was told to stop may take to end. Only a leak takes that long.
_GRACE_SECONDS = 5.0


def environment():
    """Returns a copy of the environment without the variables that pytest writes."""
    return {k: v for k, v in os.environ.items() if k not in _NOT_OURS}


def describe_changes(before, after):
    """Returns one line per environment variable that differs."""
    return [
        f"environment variable {name} was {before.get(name)!r}, is {after.get(name)!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def surviving_threads(before):
    """Returns one line per thread that started since `before` and still works."""
    survivors = []
    for thread in set(threading.enumerate()) - before:
        if isinstance(thread, threading._DummyThread):
            continue  # Python's record of a native thread that once called it.
        if not is_over(thread, _GRACE_SECONDS):
            survivors.append(f"thread {thread.name!r} still runs; join it")
    return survivors


@pytest.fixture(autouse=True)
def leaks():
    """Fails a test that leaves a thread, a variable or a scope behind."""
    threads, variables = set(threading.enumerate()), environment()
    yield
    found = describe_changes(variables, environment()) + surviving_threads(threads)
    if unisono.distribute.has_strategy():
        found.append("a strategy is still in scope; leave it with its `with` block")
    if found:
        pytest.fail("the test leaks: " + "; ".join(found) + ".", pytrace=False)
