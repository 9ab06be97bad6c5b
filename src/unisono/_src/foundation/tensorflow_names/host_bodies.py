"""Second bodies of everyday names: what they compute in datasets' functions.

A call of JAX costs some 30 microseconds, of which a pipeline makes several for every
element. The numbers of a dataset are on the host, and NumPy computes there with
TensorFlow's types, 64 bits included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, final

import numpy as np

from unisono._src.foundation import ambient

_T = TypeVar("_T")


# What the host has. Classes of users that stand for an array may be of JAX.
_PLAIN = (
    np.ndarray, np.generic, np.dtype, bool, int, float, complex, str, bytes, type,
    type(None),
)  # fmt: skip
# Exact classes, of which most arguments are: the fastest question.
_EXACT = set(_PLAIN)


@final
class TextError(TypeError):
    """Says that a function of JAX's arrays was given text, which only the host has."""


def add_classes(*classes: type) -> None:
    """Adds exact classes of the host to those that are known."""
    _EXACT.update(classes)


def choose(
    function: _T,
    host: Callable[..., object] | None,
    quick: Callable[..., object] | None = None,
) -> _T:
    """Returns a function that calls `host` in the functions of datasets.

    Elsewhere, and where an array of JAX or a variable is among the arguments, it calls
    `function`; `host` again if that is given text.

    Args:
        function: the function of JAX's arrays.
        host: takes the same arguments and computes with NumPy; None for `function`
            everywhere.
        quick: called before `host`; returns None for all but the most frequent
            arguments. After a photo has been decoded, the caches have nothing of
            Python any more, and each call of a function takes a microsecond.
    """
    if host is None:
        return function
    called: Any = function

    @functools.wraps(called)
    def entry(*args: Any, **kwargs: Any) -> Any:
        if ambient.is_in_dataset():
            if quick is not None:
                made = quick(*args, **kwargs)
                if made is not None:
                    return made
            if are_of_host(args) and (not kwargs or are_of_host(kwargs.values())):
                return host(*args, **kwargs)
        try:
            return called(*args, **kwargs)
        except TextError:
            if not are_of_host(args) or not are_of_host(kwargs.values()):
                raise
            return host(*args, **kwargs)

    chosen: _T = entry  # type: ignore[assignment]
    return chosen


def are_of_host(values: Iterable[object]) -> bool:
    """Returns whether all values, and all in nested lists, are not of JAX."""
    # A loop, not a generator: this runs at every call of a name.
    for x in values:
        if type(x) in _EXACT:
            continue
        if isinstance(x, (list, tuple)):
            if not are_of_host(x):
                return False
        elif not isinstance(x, _PLAIN):
            return False
    return True
