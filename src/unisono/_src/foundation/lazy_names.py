"""Names of a public module that are loaded on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def names(
    module: str, table: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of `module` for the names in `table`.

    Args:
        module: The name of the module that has the names.
        table: For each name the module that defines it, with ``:name`` behind it if
            it has another one there; `module` itself for one of its submodules.
    """

    def find(name: str) -> object:
        if name not in table:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if table[name] == module:
            return importlib.import_module(f"{module}.{name}")
        where, _, there = table[name].partition(":")
        return getattr(importlib.import_module(where), there or name)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[module]), *table})

    return find, listed
