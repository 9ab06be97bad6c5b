"""TensorFlow's everyday names that are here: their paths, and how they differ."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from typing import TypeVar, final

from unisono._src.foundation import public_names
from unisono._src.foundation.tensorflow_names import host_bodies

_T = TypeVar("_T")


@final
@dataclasses.dataclass(frozen=True)
class EverydayName:
    """What stands at one of TensorFlow's paths.

    Attributes:
        path: the first of its paths, without ``tf.``, such as ``"math.floormod"``.
        value: the function, class or value.
        difference: how it differs from TensorFlow's, in a sentence; "" if it does not.
        is_of_arrays: whether it is a function of arrays, which models of Keras may have
            as an operation.
    """

    path: str
    value: object
    difference: str
    is_of_arrays: bool


# By each path, those of aliases too. A module adds its names when it is loaded.
NAMES: dict[str, EverydayName] = {}


def add(
    value: object,
    path: str,
    *also: str,
    difference: str = "",
    is_of_arrays: bool = False,
) -> None:
    """Notes that a value stands at TensorFlow's paths.

    Args:
        value: the function, class or value.
        path: TensorFlow's path without ``tf.``; the first one if there are several.
        *also: its further paths.
        difference: how it differs from TensorFlow's, in a sentence.
        is_of_arrays: whether it is a function of arrays.

    Raises:
        ValueError: something else stands at one of the paths.
    """
    paths = (path, *also)
    taken = [one for one in paths if one in NAMES]
    if taken:
        raise ValueError(f"Something else has TensorFlow's path {taken[0]!r} already.")
    NAMES.update(
        dict.fromkeys(paths, EverydayName(path, value, difference, is_of_arrays))
    )


def everyday_name(
    path: str,
    *also: str,
    difference: str = "",
    host: Callable[..., object] | None = None,
    quick: Callable[..., object] | None = None,
    is_of_arrays: bool = False,
) -> Callable[[_T], _T]:
    """Returns a decorator that gives a function or class its paths of TensorFlow.

    The arguments are those of `add`, and `host` and `quick` of `host_bodies.choose`.
    The function says that it comes from the public module of its first path.
    """
    above, _, name = path.rpartition(".")

    def give(value: _T) -> _T:
        value = host_bodies.choose(value, host, quick)
        add(value, path, *also, difference=difference, is_of_arrays=is_of_arrays)
        public_names.publish(f"unisono.{above}".rstrip("."), **{name: value})
        return value

    return give


def array_function(
    path: str,
    *also: str,
    difference: str = "",
    host: Callable[..., object] | None = None,
    quick: Callable[..., object] | None = None,
) -> Callable[[_T], _T]:
    """Returns a decorator that gives a function of arrays its paths of TensorFlow.

    Its docstring gets two more sentences: whose arguments it takes, and `difference`.
    The arguments are those of `add`, and `host` and `quick` of `host_bodies.choose`.
    """
    told = (
        f"The arguments are those of TensorFlow's ``tf.{path}``; `name` has no effect."
    )
    give = everyday_name(
        path,
        *also,
        difference=difference,
        host=host,
        quick=quick,
        is_of_arrays=True,
    )

    def describe(value: _T) -> _T:
        paragraphs = (
            inspect.cleandoc(value.__doc__ or ""),
            textwrap.fill(told, 84),
            textwrap.fill(difference, 84),
        )
        value.__doc__ = "\n\n".join(filter(None, paragraphs)) + "\n"
        return give(value)

    return describe


def names_in(module: str) -> dict[str, EverydayName]:
    """Returns the names of a public module that are loaded, without their module.

    >>> sorted(names_in("unisono.no_such_module"))
    []
    """
    above = module.partition(".")[2]
    split = ((path.rpartition("."), entry) for path, entry in NAMES.items())
    return {name: entry for (where, _, name), entry in split if where == above}
