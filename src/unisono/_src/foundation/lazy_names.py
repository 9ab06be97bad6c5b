"""Names of a public module that load on first use, and errors for those it lacks."""

from __future__ import annotations

import dis
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import final

from unisono._src.foundation.tensorflow_names import everyday

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]

# Loaded when a name is missing, and not before: it reads a list of many names.
_MISSING = "unisono._src.foundation.tensorflow_names.missing"


def make_lookups(
    module: str,
    table: Mapping[str, str],
    everyday_modules: Sequence[str] = (),
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a module with lazy names.

    A name that the module does not have but TensorFlow does is an error that says what
    to write instead.

    Args:
        module: the name of the module that has the names.
        table: for each name the module that defines it, as ``module`` or, if it is
            called otherwise there, as ``module:name``. A submodule has `module` itself.
        everyday_modules: the modules that give further names by the decorators of
            `tensorflow_names.everyday`. They are loaded one after the other until a
            name is found. The module's ``__all__`` gets these names, too.

    >>> find, _ = make_lookups("shapes", {"circle": "math:pi"})
    >>> round(find("circle"), 2)
    3.14
    """
    # From now on `__getattr__` gives it, with the everyday names: they are not known
    # before all of their modules are loaded.
    listed = vars(sys.modules[module]).pop("__all__") if everyday_modules else []

    def find(name: str) -> object:
        found: object
        if name == "__all__" and everyday_modules:
            found = sorted({*listed, *load_all()})
        elif name not in table:
            entry = _search(module, everyday_modules, name)
            if entry is None:
                frame = inspect.currentframe()
                raise _missing_error(module, name, frame.f_back if frame else None)
            found = entry.value
        elif table[name] == module:
            return importlib.import_module(f"{module}.{name}")
        else:
            where, _, there = table[name].partition(":")
            found = getattr(importlib.import_module(where), there or name)
        if module in sys.modules:  # The next use needs no search.
            setattr(sys.modules[module], name, found)
        return found

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *table, *load_all(), "__all__"})

    def load_all() -> Mapping[str, everyday.EverydayName]:
        for where in everyday_modules:
            importlib.import_module(where)
        return everyday.names_in(module)

    return find, list_names


def _search(
    module: str, everyday_modules: Sequence[str], name: str
) -> everyday.EverydayName | None:
    """Returns the everyday name of a public module, which loads its function."""
    if name.startswith("_"):
        return None
    path = f"{module}.{name}".partition(".")[2]
    for where in everyday_modules:
        if path in everyday.NAMES:
            break
        importlib.import_module(where)
    return everyday.NAMES.get(path)


def _explain(name: str) -> str | None:
    """Returns the advice for a name of TensorFlow; None for any other name."""
    missing = importlib.import_module(_MISSING)
    told = missing.explain(name.removeprefix("unisono."))
    return None if told is None else f"{told} See {missing.PAGE}."


@final
class _MissingModules:
    """Gives advice for ``import unisono.strings``, which no other finder finds."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raises an error if TensorFlow has a module of this name."""
        package, *parts = name.split(".")
        is_public = not any(part.startswith("_") for part in parts)
        # Modules of Keras are found in another way.
        if package == "unisono" and parts and is_public and parts[0] != "keras":
            more = _explain(name)
            if more is not None:
                said = f"No module named {name!r}: {more}"
                raise ModuleNotFoundError(said, name=name)


def install() -> None:
    """Makes the import of a module that only TensorFlow has raise with advice."""
    # At the end: it is asked only when no finder has found the module.
    if _MissingModules not in sys.meta_path:
        sys.meta_path.append(_MissingModules)


def _missing_error(module: str, name: str, asker: types.FrameType | None) -> Exception:
    """Returns the error for a name that a module does not have.

    Args:
        module: the module's name.
        name: the name that it does not have.
        asker: the frame that asks for it. Python drops the text of an `AttributeError`
            if that is a ``from module import name``, but not that of an `ImportError`.
    """
    said = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):  # Names that copy, inspect, doctest and the like ask for.
        return AttributeError(said)
    more = _explain(f"{module}.{name}")
    if more is None:
        return AttributeError(said)
    if asker and asker.f_code.co_code[asker.f_lasti] == _IMPORT_FROM:
        return ImportError(f"cannot import name {name!r} from {module!r}: {more}")
    # With an object Python would add the nearest name that the module has.
    return AttributeError(f"{said}: {more}", name=name, obj=None)
