"""Public names of classes and functions: what `help`, tracebacks and pickles say."""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Mapping
from typing import Any

# The module that defines each; `__module__` no longer tells.
homes: dict[Any, str] = {}


def publish(module: str, *objects: Any, **renamed: Any) -> None:
    """Let classes and functions say that they come from a public module.

    `lazy_names.serve` does it for what a public module imports. A module of ours calls
    it itself if programs can get its objects before they use the public names.

    Args:
        module: the public module.
        *objects: classes and functions that have the same name there.
        **renamed: others, by their names there.

    >>> def shown(): ...
    >>> publish("unisono.examples", Example=shown)
    >>> shown.__module__, shown.__qualname__
    ('unisono.examples', 'Example')
    """
    for name, thing in renamed.items():
        # A factory function stands where TensorFlow has a class of this name.
        thing.__name__ = thing.__qualname__ = name
    for thing in (*objects, *renamed.values()):
        homes[thing] = thing.__module__
        thing.__module__ = module


def find_path(thing: object) -> str | None:
    """Returns the name under which the module of an object has it, or None.

    None as well for what is in the main module, which is another in other processes.

    >>> find_path(publish)
    'publish'
    """
    home, path = thing.__module__, getattr(thing, "__qualname__", None)
    if path is None or home == "__main__":
        return None
    try:
        found = operator.attrgetter(path)(sys.modules.get(home))
    except AttributeError:
        return None
    return path if found is thing else None


def publish_private(module: str, values: Mapping[str, object]) -> None:
    """Publish the classes and functions among some values that are not public yet."""
    for name, value in values.items():
        has_name = inspect.isclass(value) or inspect.isfunction(value)
        if has_name and value.__module__.startswith("unisono._src."):
            publish(module, **{name: value})
