"""Names of a public module that load on first use, and errors for those it lacks."""

from __future__ import annotations

import ast
import dataclasses
import dis
import functools
import importlib
import importlib.util
import inspect
import pathlib
import sys
import types
from collections.abc import Mapping, Sequence
from typing import final

from unisono._src.foundation import public_names
from unisono._src.foundation.tensorflow_names import everyday

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]

# Loaded when a name is missing, and not before: it reads a list of many names.
_MISSING = "unisono._src.foundation.tensorflow_names.missing"
_KERAS = "unisono.keras"


def serve(module: str) -> None:
    """Lets a public module find all of its names; the module calls it at its end.

    What the module imports or assigns without a leading underscore is public, and
    `__all__` lists it. Names under ``if TYPE_CHECKING`` load on first use, those of
    Keras among them, which `__all__` leaves out: to list them is to load Keras. A
    ``from ops.making import *`` there stands for the everyday names that the modules
    imported so have given to this one (see `tensorflow_names.everyday`). They are
    loaded one after the other until a name is found, the likely one first.

    Classes and functions that no public module has served before say from now on that
    they come from this one. So a public module imports a name from `_src` if it is to
    be shown as its own, and from the other public module if not.

    A name that the module does not have but TensorFlow does is an error that says what
    to write instead.

    Args:
        module: the name of the module.
    """
    space = vars(sys.modules[module])
    eager = {n: value for n, value in space.items() if not n.startswith("_")}
    public_names.publish_private(module, eager)
    read_imports = functools.cache(lambda: _read_imports(module))

    def find(name: str) -> object:
        is_private = name.startswith("_") and name != "__all__"
        imports = _Imports() if is_private else read_imports()
        found: object
        if name == "__all__":
            found = sorted({*eager, *imports.listed(), *load_all()})
        elif name in imports.names:
            where, there = imports.names[name]
            if where == module:
                return importlib.import_module(f"{module}.{name}")
            found = getattr(__import__(where, fromlist=[there]), there)
            public_names.publish_private(module, {name: found})
        else:
            entry = _search(module, imports.stars, name)
            if entry is None:
                # Not in a variable: a frame that holds itself, and so its callers,
                # lives until garbage is collected.
                raise _missing_error(module, name, inspect.currentframe())
            found = entry.value
        space[name] = found  # The next use needs no search.
        return found

    def list_names() -> list[str]:
        names = {*space, *read_imports().names, *load_all(), "__all__"}
        return sorted(n for n in names if n.startswith("__") or n[0] != "_")

    def load_all() -> Mapping[str, everyday.EverydayName]:
        for where in read_imports().stars:
            importlib.import_module(where)
        return everyday.names_in(module)

    space.update(__getattr__=find, __dir__=list_names)


@final
@dataclasses.dataclass(frozen=True)
class _Imports:
    """The import statements of a module, those for type checkers too.

    Attributes:
        names: the module and the name there, by the name here.
        stars: the modules of which all names are imported.
    """

    names: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    stars: list[str] = dataclasses.field(default_factory=list)

    def listed(self) -> list[str]:
        """Returns the names that are not of Keras."""
        return [n for n, at in self.names.items() if not at[0].startswith(_KERAS)]


def _read_imports(module: str) -> _Imports:
    """Returns the imports of a module from its source.

    They are stated there alone: type checkers read the statements themselves.
    """
    stars: list[str] = []
    names: dict[str, tuple[str, str]] = {}
    statements = list(ast.walk(ast.parse(inspect.getsource(sys.modules[module]))))
    for step in statements:
        match step:
            case ast.ImportFrom(module=str(where), names=[ast.alias(name="*")]):
                stars.append(where)
            case ast.ImportFrom(module=str(where), names=found):
                names |= {x.asname or x.name: (where, x.name) for x in found}
    # An alias: `Topology = _core_grid.TPUTopology`, where `_core_grid` is imported.
    for step in statements:
        match step:
            case ast.Assign([ast.Name(name)], ast.Attribute(ast.Name(via), there)) if (
                via in names
            ):
                names[name] = (".".join(names[via]), there)
    return _Imports({n: v for n, v in names.items() if not n.startswith("_")}, stars)


def _search(
    module: str, everyday_modules: Sequence[str], name: str
) -> everyday.EverydayName | None:
    """Returns the everyday name of a public module, which loads its function."""
    path = f"{module}.{name}".partition(".")[2]
    # The module that says the path first: others load what the program may not need.
    says = f'"{path}"'
    for where in sorted(everyday_modules, key=lambda m: says not in _read_source(m)):
        if path in everyday.NAMES:
            break
        importlib.import_module(where)
    return everyday.NAMES.get(path)


@functools.cache
def _read_source(module: str) -> str:
    """Returns the source of a module, without loading it."""
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    return pathlib.Path(found.origin).read_text(encoding="utf-8")


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


def _missing_error(module: str, name: str, asked: types.FrameType | None) -> Exception:
    """Returns the error for a name that a module does not have.

    Args:
        module: the module's name.
        name: the name that it does not have.
        asked: the frame of the function that Python asks for it. Python drops the text
            of an `AttributeError` if its caller is a ``from module import name``, but
            not that of an `ImportError`.
    """
    asker = asked.f_back if asked else None
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
