"""Completes the examples of docstrings, so that they run where they are copied to.

Tests run an example in the module of its object, whose names it may use. A reader has
only what the example imports.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import functools
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any


def add_imports(value: Any, lines: list[str]) -> None:
    """Adds the imports that the examples of a docstring lack.

    Args:
        value: the object that the docstring is about.
        lines: the lines of the docstring, which are changed in place.
    """
    try:
        examples = doctest.DocTestParser().get_examples("\n".join(lines))
        tree = ast.parse("".join(example.source for example in examples))
    except (ValueError, SyntaxError):
        return
    known, home = _globals_of(value), getattr(value, "__module__", None) or ""
    found = (
        _import(n, known.get(n)) or _import_public(n, home) for n in find_free(tree)
    )
    missing = sorted(filter(None, found))
    if missing:
        start, indent = examples[0].lineno, " " * examples[0].indent
        lines[start:start] = [f"{indent}>>> {line}" for line in missing]


def _globals_of(value: Any) -> dict[str, Any]:
    """Returns the names of the module in which an object was written."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    elif inspect.isclass(value):
        value = next(filter(inspect.isfunction, vars(value).values()), value)
    return getattr(inspect.unwrap(value), "__globals__", {})


def find_free(tree: ast.Module) -> Iterator[str]:
    """Yields the names that a program uses and does not define."""
    defined: set[str] = set(vars(builtins))
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            defined.add(node.name)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
    yield from used - defined


def _import(name: str, value: Any) -> str | None:
    """Returns the statement that imports what a name means; None if it is private."""
    if isinstance(value, types.ModuleType):
        path, is_same = value.__name__, value.__name__ == name
        line = f"import {path}" if is_same else f"import {path} as {name}"
    else:
        path, own = (getattr(value, x, "") for x in ("__module__", "__qualname__"))
        if not own or "." in own:
            return None
        line = f"from {path} import {own}"
        line += "" if own == name else f" as {name}"
    return None if "._" in path or path.startswith("_") else line


def _import_public(name: str, home: str) -> str | None:
    """Returns the statement that imports a name of a public module, or of a parent."""
    while home and "._" not in home:
        if hasattr(sys.modules.get(home), name):
            return f"from {home} import {name}"
        home = home.rpartition(".")[0]
    return None
