"""Names of a public module that are imported on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def names(
    module: str, table: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a module with lazy names.

    Args:
        module: the name of the module that has the names.
        table: for each name the module that defines it, as ``module`` or, if it is
            called otherwise there, as ``module:name``. A submodule has `module` itself.

    >>> find, _ = names("shapes", {"circle": "math:pi"})
    >>> round(find("circle"), 2)
    3.14
    """

    def find(name: str) -> object:
        if name not in table:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if table[name] == module:
            return importlib.import_module(f"{module}.{name}")
        where, _, there = table[name].partition(":")
        found = getattr(importlib.import_module(where), there or name)
        if module in sys.modules:  # The next use needs no search.
            setattr(sys.modules[module], name, found)
        return found

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *table})

    return find, list_names


def spread(names_of: Mapping[str, str]) -> dict[str, str]:
    """Returns the table of `names` from a list of names for each module.

    Args:
        names_of: for each module its names, with spaces between them. A name that is
            another one in that module is followed by ``=`` and the other one.

    >>> spread({"math": "pi root=sqrt"})
    {'pi': 'math:pi', 'root': 'math:sqrt'}
    """
    found = {}
    for module, text in names_of.items():
        for entry in text.split():
            name, _, there = entry.partition("=")
            found[name] = f"{module}:{there or name}"
    return found
