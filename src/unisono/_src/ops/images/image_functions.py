"""Gives image functions one body for NumPy, in datasets, and for JAX, elsewhere."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation.tensorflow_names import everyday
from unisono._src.input.plan import elements, host_buffers
from unisono._src.ops import kinds, tensors

# `numpy` or `jax.numpy`.
ArrayModule: TypeAlias = ModuleType

# The memory of photos, which the next ones use again: fresh memory takes the operating
# system a tenth of the time of decoding. Programs of XLA read it in place.
buffers = host_buffers.Buffers()

# The line of a docstring for the argument that callers do not give.
_NOT_GIVEN = re.compile(r"^ *xp: the array module\.\n", re.MULTILINE)

_P = ParamSpec("_P")
_R = TypeVar("_R")


def image_function(
    path: str,
    *also: str,
    difference: str = "",
    is_of_arrays: bool = True,
    is_arithmetic: bool = True,
    quick: Callable[..., np.ndarray | None] | None = None,
) -> Callable[[Callable[Concatenate[ArrayModule, _P], _R]], Callable[_P, _R]]:
    """Returns a decorator for a function that takes the array module first.

    What it makes takes the other arguments. In a dataset's function it computes with
    NumPy, and elsewhere with JAX.

    Args:
        path: TensorFlow's path without ``tf.``; the first one if there are several.
        *also: its further paths.
        difference: how it differs from TensorFlow's, in a sentence.
        is_of_arrays: whether it is a function of arrays alone; a function of files or
            of random numbers is not.
        is_arithmetic: whether NumPy might warn of what the body computes.
        quick: takes the arguments without the array module; returns what the body
            computes for the most frequent ones with NumPy, and None for others.
    """
    publish = everyday.array_function if is_of_arrays else everyday.everyday_name

    def give(body: Callable[Concatenate[ArrayModule, _P], _R]) -> Callable[_P, _R]:
        def on_host(*args: _P.args, **kwargs: _P.kwargs) -> object:
            if not is_arithmetic:
                return elements.present(body(np, *args, **kwargs))
            # JAX and TensorFlow say nothing of 0 / 0, which a later step replaces.
            with np.errstate(all="ignore"):
                return elements.present(body(np, *args, **kwargs))

        def on_jax(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return body(jnp, *args, **kwargs)

        functools.update_wrapper(on_jax, body)
        del on_jax.__wrapped__  # type: ignore[attr-defined]
        on_jax.__doc__ = _NOT_GIVEN.sub("", body.__doc__ or "")
        given = inspect.signature(body)
        kept = list(given.parameters.values())[1:]
        on_jax.__signature__ = given.replace(parameters=kept)  # type: ignore[attr-defined]
        made: Callable[_P, _R] = publish(
            path, *also, difference=difference, host=on_host, quick=quick
        )(on_jax)
        return made

    return give


def as_result(x: np.ndarray) -> jax.Array:
    """Returns an array of NumPy by the type that image functions say they return."""
    # Not `typing.cast`, which is a call for every image.
    return x  # type: ignore[return-value]


def read_array(xp: ArrayModule, name: str, x: object) -> jax.Array:
    """Returns an argument as an array of real numbers.

    Raises:
        InvalidArgumentError: it is of another type.
    """
    found: jax.Array
    if xp is np:
        # What other names of datasets' functions return comes first.
        is_known = type(x) is elements.HostArray
        found = np.asarray(x if is_known else elements.to_array(x))  # type: ignore[assignment]
    else:
        found = tensors.tensor(x)
    kinds.check(name, found.dtype, kinds.REAL)
    return found


def read_images(
    xp: ArrayModule, name: str, x: object, ranks: Sequence[int] = (3, 4)
) -> jax.Array:
    """Returns an argument as an image, or as images of one size.

    Args:
        xp: the array module.
        name: the name of the function.
        x: the argument.
        ranks: how many axes it may have; the last three are height, width and channels.

    Raises:
        InvalidArgumentError: it has numbers of another type.
        ValueError: it has another number of axes, or an image has no pixels.
    """
    found = read_array(xp, name, x)
    if found.ndim not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ValueError(
            f"'image' (shape {found.shape}) must have either {wanted} dimensions, in "
            f"{name}: [height, width, channels], or [batch, ...] before them."
        )
    if 0 in found.shape[-3:]:
        raise ValueError(
            f"inner 3 dims of 'image.shape' must be > 0: {found.shape}, in {name}."
        )
    return found


def read_size(name: str, what: str, x: object) -> int:
    """Returns a whole number that is known when a program is compiled.

    Raises:
        TypeError: it is not.
    """
    found = tensors.require_known(name, what, x)
    if isinstance(found, tuple):
        raise TypeError(f"{what} of {name} must be one whole number, received {x!r}.")
    return int(found)
