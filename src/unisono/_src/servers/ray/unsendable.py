"""Finds an object that cannot be sent to another process, and its name in the code."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from unisono._src.servers.worker_data import (
    DatasetMaker,
    WorkerBatches,
    WorkerFunction,
)

# Objects of ours that hold what the program gave.
_OURS = (DatasetMaker, WorkerBatches, WorkerFunction)


def find(args: Any, dump: Callable[[Any], object]) -> tuple[str, Any, str] | None:
    """Returns the first thing in a call's arguments that cannot be sent.

    Args:
        args: the arguments.
        dump: writes an object as bytes, or raises.

    Returns:
        The names by which it is found, such as ``make.reader.lock``; the object; and
        why it cannot be sent. None if all can be sent.
    """
    return _find("", args, dump, set())


def _find(
    path: str, value: Any, dump: Callable[[Any], object], seen: set[int]
) -> tuple[str, Any, str] | None:
    seen.add(id(value))
    try:
        dump(value)
    except Exception as error:
        told = str(error).partition("\n")[0]
    else:
        return None
    for name, child in _children(value):
        if id(child) in seen:
            continue
        below = ".".join(x for x in (path, name) if x)
        found = _find(below, child, dump, seen)
        if found is not None:
            return found
    # None of its parts fails by itself, so it is this object.
    return path, value, told


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields all that is sent with an object, by the names that a program uses."""
    if isinstance(value, _OURS):
        for child in vars(value).values():
            yield getattr(child, "__name__", ""), child
    elif isinstance(value, functools.partial):
        yield getattr(value.func, "__name__", ""), value.func
        yield "", [*value.args, *value.keywords.values()]
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
    elif inspect.isfunction(value):
        found = inspect.getclosurevars(value)
        yield from {**found.globals, **found.nonlocals}.items()
        yield "", value.__defaults__
    elif isinstance(value, Mapping):
        yield from ((f"[{k!r}]", v) for k, v in value.items())
    elif isinstance(value, (list, tuple)):
        yield from (("", v) for v in value)
    elif not type(value).__module__.startswith("unisono."):
        # Attributes of our own objects mean nothing to a program.
        yield from getattr(value, "__dict__", {}).items()
