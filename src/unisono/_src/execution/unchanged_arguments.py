"""Calls functions that must leave their arguments as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from unisono._src.execution import conversion
from unisono._src.foundation import nest
from unisono._src.state.variable_identity import Reference

_R = TypeVar("_R")


def call(fn: Callable[..., _R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _R:
    """Return the result of a function that changes no list or dictionary it is given.

    A trace gives a function containers of its own: a change of them would be lost.

    Args:
        fn: the function.
        args: its arguments.
        kwargs: its keyword arguments.

    Raises:
        ValueError: the function has changed one of them.

    >>> call(len, ([1, 2],), {})
    2
    >>> call(list.pop, ([1, 2],), {})
    Traceback (most recent call last):
    ValueError: pop() should not modify its Python input arguments. Check if it modifies
    any lists or dicts passed as arguments. Modifying a copy is allowed. Return what is
    new instead.
    """
    if not any(map(nest.is_nested, (*args, *kwargs.values()))):
        return fn(*args, **kwargs)
    before = _picture((args, kwargs))
    result = fn(*args, **kwargs)
    if _picture((args, kwargs)) != before:
        name = getattr(fn, "__name__", repr(fn))
        raise ValueError(
            # TensorFlow's words.
            f"{name}() should not modify its Python input arguments. Check if it "
            "modifies any lists or dicts passed as arguments. Modifying a copy is "
            "allowed. Return what is new instead."
        )
    return result


def guard(fn: Callable[..., _R], chosen: conversion.Conversion) -> Callable[..., _R]:
    """Return a function that does what `fn` does, and raises as `call` does.

    Args:
        fn: the function.
        chosen: whether it is converted.
    """

    @functools.wraps(fn, updated=())
    def guarded(*args: object, **kwargs: object) -> _R:
        return call(chosen.choose(fn), args, kwargs)

    return guarded


def give_copies(fn: Callable[..., _R]) -> Callable[..., _R]:
    """Return a function that gives `fn` lists and dictionaries that it may change.

    >>> given = [1, 2]
    >>> give_copies(list.pop)(given), given
    (2, [1, 2])
    """

    @functools.wraps(fn, updated=())
    def copying(*args: object, **kwargs: object) -> _R:
        args, kwargs = nest.map_structure(lambda x: x, (args, kwargs))
        return conversion.choose(fn)(*args, **kwargs)

    return copying


def _picture(x: object) -> Any:
    """Return the layout and the leaves of a structure as they are now."""
    if not nest.is_nested(x):
        return Reference(x)
    keys = nest.keys(x) if isinstance(x, Mapping) else None
    return keys, [_picture(child) for child in nest.children(x)]
