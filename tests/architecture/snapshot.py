"""Renders the public names and signatures as text, to compare with a stored copy.

`python -m tests.architecture.snapshot` writes the copy again after an intended change.
"""

import enum
import importlib
import importlib.util
import inspect
import os
import pathlib
import pkgutil
import re
import types

import unisono

SNAPSHOT = pathlib.Path(__file__).with_name("public_api.txt")

# Modules that need a library that is not installed are left out. An installed library
# is loaded now, because loading changes environment variables, which no test may do.
NEEDED = {"unisono.keras.callbacks": "keras"}
ABSENT = [n for n, needs in NEEDED.items() if not importlib.util.find_spec(needs)]
os.environ.setdefault("KERAS_BACKEND", "jax")
for _name in set(NEEDED) - set(ABSENT):
    importlib.import_module(NEEDED[_name])

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def public_modules():
    """Returns every public module of the package by name, sorted."""
    found = {"unisono": unisono}
    for info in pkgutil.walk_packages(unisono.__path__, "unisono."):
        is_public = not any(part.startswith("_") for part in info.name.split("."))
        if is_public and info.name not in ABSENT:
            found[info.name] = importlib.import_module(info.name)
    return dict(sorted(found.items()))


def public_names():
    """Yields (qualified name, object) for each name in a public `__all__`."""
    for module_name, module in public_modules().items():
        for name in sorted(module.__all__):
            yield f"{module_name}.{name}", getattr(module, name)


def stored():
    """Returns the lines of the copy without those of modules that are left out."""
    lines, is_there = [], True
    for line in SNAPSHOT.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            is_there = not any(f"{name}." in line for name in ABSENT)
        lines += [line] if is_there else []
    return lines


def render():
    """Returns all public names with their signatures, one per line."""
    lines = []
    for name, value in public_names():
        lines += _render_name(name, value)
    return "\n".join(lines) + "\n"


def _render_name(name, value):
    if isinstance(value, types.ModuleType):
        return [f"{name}: module"]
    if inspect.isclass(value):
        return _render_class(name, value)
    if callable(value):
        return [f"{name}{_signature(value)}"]
    return [f"{name}: {type(value).__name__}"]


def _render_class(name, cls):
    if issubclass(cls, enum.Enum):
        return [f"class {name}: {', '.join(cls.__members__)}"]
    lines = [f"class {name}{_signature(cls)}"]
    for member in sorted(dir(cls)):
        if not member.startswith("_") and _is_ours(cls, member):
            lines.append(f"    {_render_member(cls, member)}")
    return lines


def _is_ours(cls, member):
    owner = next(base for base in cls.__mro__ if member in vars(base))
    return owner.__module__.partition(".")[0] == "unisono"


def _render_member(cls, member):
    value = inspect.getattr_static(cls, member)
    for kind in (classmethod, staticmethod):
        if isinstance(value, kind):
            return f"{kind.__name__} {member}{_signature(getattr(cls, member))}"
    if inspect.isroutine(value):
        return f"{member}{_signature(value)}"
    return f"{member}"


def _signature(value):
    """Returns the names, kinds and defaults of parameters.

    Annotations are left out, because versions of Python print them differently.
    """
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    bare = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
    ]
    text = str(inspect.Signature(bare))
    return _ADDRESS.sub("", text)


if __name__ == "__main__":
    if ABSENT:
        raise SystemExit(f"{ABSENT} cannot be loaded here and would be left out.")
    SNAPSHOT.write_text(render(), encoding="utf-8")
    print(f"{SNAPSHOT.name}: {len(render().splitlines())} lines")
