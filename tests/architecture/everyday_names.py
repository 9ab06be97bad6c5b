"""Writes the differences of TensorFlow's everyday names to `docs/differences.md`.

`python -m tests.architecture.everyday_names` writes the list again after a change.
"""

import ast
import importlib
import inspect
import pathlib
import textwrap

import unisono
from unisono._src.foundation.tensorflow_names import everyday

# The public modules whose everyday names load on first use.
MODULES = (
    "unisono",
    "unisono.image",
    "unisono.io",
    "unisono.linalg",
    "unisono.lookup",
    "unisono.math",
    "unisono.nn",
    "unisono.sparse",
    "unisono.strings",
    "unisono.train",
)
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "differences.md"
_PLACES = ("unisono._src.ops.", "unisono._src.foundation.tensor_shape")
_BEGIN, _END = "<!-- rows of the table -->", "<!-- end of the rows -->"


def load():
    """Returns all everyday names, by TensorFlow's paths."""
    for name in MODULES:
        dir(importlib.import_module(name))
    for name in ("autograph", "config", "debugging", "dtypes", "nest", "random"):
        _load_names(getattr(unisono, name))
    return dict(everyday.NAMES)


def _load_names(module):
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.ismodule(found):
            _load_names(found)


def seen_by_checkers(module):
    """Returns the names that a public module imports for type checkers from ops."""
    path = pathlib.Path(importlib.import_module(module).__file__)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith(_PLACES):
            written = [alias.asname or alias.name for alias in node.names]
            if written == ["*"]:
                written = importlib.import_module(node.module).__all__
            names |= {*written}
    return names


def differences():
    """Returns the list of what everyday names do otherwise than in TensorFlow."""
    paths = {}
    for entry in load().values():
        if entry.difference and f"`{entry.path}`" not in paths.get(
            entry.difference, []
        ):
            paths.setdefault(entry.difference, []).append(f"`{entry.path}`")
    entries = [f"{', '.join(sorted(p))}: {text}" for text, p in paths.items()]
    lines = []
    for entry in sorted(entries):
        lines += textwrap.wrap(
            entry,
            90,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def with_differences(text):
    """Returns the page of differences with the list of everyday names in its place."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    return f"{before}{begin}\n{differences()}\n{end}{after}"


def main():
    """Writes the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_differences(page), encoding="utf-8")
    print(f"{len(load())} names")


if __name__ == "__main__":
    main()
