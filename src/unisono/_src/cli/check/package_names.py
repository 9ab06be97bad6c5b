"""The names of the package itself, found by asking it."""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax

from unisono._src.foundation import jax_internals
from unisono._src.foundation.tensorflow_names import everyday, listing

NOTHING = object()


@functools.cache
def find(path: str) -> Any:
    """Returns the object that the package has at TensorFlow's path, or `NOTHING`.

    Args:
        path: the dotted path without ``tf.``; below a class, one of its members. What
            TensorFlow's tensors have is looked for in JAX's arrays.
    """
    above, _, name = path.rpartition(".")
    if above == "Tensor":
        # The methods of arrays are those of JAX's own class.
        holders: list[Any] = [jax_internals.ArrayImpl, jax.Array]
    elif not path:
        return importlib.import_module("unisono")
    else:
        holders = [find(above)]
    for holder in holders:
        found = _member(holder, name)
        if found is not NOTHING:
            return found
    return NOTHING


def _member(holder: Any, name: str) -> Any:
    if holder is NOTHING:
        return NOTHING
    if inspect.isclass(holder):
        if name in _declared_attributes(holder):
            return getattr(holder, name, None)
        # As it is written: `getattr` would call the function of some descriptors.
        static = inspect.getattr_static(holder, name, NOTHING)
        if isinstance(static, property | functools.cached_property):
            return static
    try:
        return getattr(holder, name)
    except AttributeError:
        return NOTHING
    except ImportError:  # A package that is not installed.
        return NOTHING


def _declared_attributes(cls: type) -> set[str]:
    """Returns the attributes that a class and its bases declare for instances."""
    return {
        name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())
    }


def public_paths(path: str) -> Iterator[str]:
    """Yields a path, and those that a member has in the classes above its own.

    >>> list(public_paths("data.TFRecordDataset.map"))[-1]
    'data.Dataset.map'
    """
    yield path
    above, _, name = path.rpartition(".")
    holder = find(above)
    if inspect.isclass(holder):
        for base in holder.__mro__[1:]:
            if base.__module__.startswith("unisono") and "_src" not in base.__module__:
                module = base.__module__.removeprefix("unisono").removeprefix(".")
                yield ".".join(filter(None, (module, base.__qualname__, name)))


@functools.cache
def result(path: str, is_call: bool) -> str | None:
    """Returns the path of the class of a call's or attribute's value, if known.

    Args:
        path: the class, function, method or property.
        is_call: whether it is called; if not, only a property gives something else.
    """
    found = find(path)
    if not is_call:
        if isinstance(found, functools.cached_property):
            found = found.func
        elif isinstance(found, property):
            found = found.fget
        else:
            return None
    elif inspect.isclass(found) or _is_class_of_tensorflow(path):
        return path
    written = getattr(found, "__annotations__", {}).get("return")
    if not isinstance(written, str):
        return None
    # Annotations are texts. Only one plain name tells a class; the rest is unknown.
    parts = [p.strip() for p in written.split("|") if p.strip() != "None"]
    if len(parts) != 1 or not parts[0].replace(".", "").replace("_", "").isalnum():
        return None
    name = parts[0].rpartition(".")[2].lstrip("_")
    if name == "Self":
        return path.rpartition(".")[0]
    return "Tensor" if name == "Array" else _class_path(name)


def _is_class_of_tensorflow(path: str) -> bool:
    """Whether a class is TensorFlow's and not here, so that its objects fail, too."""
    return find(path) is NOTHING and listing.kind(path) == "class"


@functools.cache
def _class_path(name: str) -> str | None:
    """Returns the shortest path of TensorFlow's class of a name that is here, too."""
    paths = sorted(listing.paths_of("class", name), key=lambda p: p.count("."))
    return next((p for p in paths if inspect.isclass(find(p))), None)


def find_mismatch(
    path: str, is_member: bool, positional: int | None, keywords: tuple[str, ...]
) -> str | None:
    """Returns why a call does not fit the function here, or None if it does.

    Args:
        path: what is called.
        is_member: whether it is called on an instance.
        positional: the number of arguments without names; None if that is open.
        keywords: the names of the other arguments.
    """
    found = find(path)
    signature = _signature(found)
    if signature is None:
        return None
    parameters = list(signature.parameters.values())
    if is_member and _is_method(path):
        parameters = parameters[1:]
    kinds = [p.kind for p in parameters]
    named = {p.name for p in parameters if p.kind not in (p.POSITIONAL_ONLY,)}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        unknown = [f"`{k}`" for k in keywords if k not in named]
        if unknown:
            return f"It does not take the argument {' and '.join(unknown)} here."
    # Positional only, and positional or by name.
    places = [p for p in parameters if p.kind in (0, 1)]
    is_open = inspect.Parameter.VAR_POSITIONAL in kinds
    if positional is not None and not is_open and positional > len(places):
        return f"It takes {len(places)} arguments without names here."
    return None


def _is_method(path: str) -> bool:
    above, _, name = path.rpartition(".")
    holder = jax_internals.ArrayImpl if above == "Tensor" else find(above)
    static = inspect.getattr_static(holder, name, None)
    return isinstance(static, types.FunctionType | Callable) and not isinstance(
        static, classmethod | staticmethod
    )


@functools.cache
def _signature_of(found: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(found)
    except (TypeError, ValueError):
        return None


def _signature(found: Any) -> inspect.Signature | None:
    if not callable(found) or found is NOTHING:
        return None
    try:
        return _signature_of(found)
    except TypeError:  # It cannot be a key.
        return None


def everyday_difference(path: str) -> tuple[str, str]:
    """Returns the first path of a name, and how it differs if it is an everyday one."""
    find(path)  # Loads its module, which says so.
    entry = everyday.NAMES.get(path)
    return (entry.path, entry.difference) if entry else (path, "")
