"""Names of a public module that load on first use, and errors for those it lacks."""

from __future__ import annotations

import dis
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]

# Loaded when a name is missing, and not before: it reads a list of many names.
_MISSING = "unisono._src.foundation.tensorflow_names.missing"


def names(
    module: str, table: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a module with lazy names.

    A name that the module does not have but TensorFlow does is an error that says what
    to write instead.

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
            frame = inspect.currentframe()
            raise _missing(module, name, frame.f_back if frame else None)
        if table[name] == module:
            return importlib.import_module(f"{module}.{name}")
        where, _, there = table[name].partition(":")
        return getattr(importlib.import_module(where), there or name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *table})

    return find, list_names


def _missing(module: str, name: str, asker: types.FrameType | None) -> Exception:
    """Returns the error for a name that a module does not have.

    Args:
        module: the module's name.
        name: the name that it does not have.
        asker: the frame that asks for it. Python drops the text of an `AttributeError`
            if that is a ``from module import name``, but not that of an `ImportError`.
    """
    said = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):  # What copy, inspect, doctest and the like ask for.
        return AttributeError(said)
    missing = importlib.import_module(_MISSING)
    told = missing.explain(f"{module}.{name}".removeprefix("unisono."))
    if told is None:
        return AttributeError(said)
    more = f"{told} See {missing.PAGE}."
    if asker and asker.f_code.co_code[asker.f_lasti] == _IMPORT_FROM:
        return ImportError(f"cannot import name {name!r} from {module!r}: {more}")
    # With an object Python would add the nearest name that the module has.
    return AttributeError(f"{said}: {more}", name=name, obj=None)


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
