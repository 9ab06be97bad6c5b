"""Axes and positions: finds them, checks them, and computes along them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.ops import elementwise, kinds, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import DType, Sizes, TensorLike
from unisono._src.values import jax_tapes


def find_axis(name: str, axis: Sizes | None, rank: int) -> int:
    """Returns one axis as a positive number.

    Raises:
        InvalidArgumentError: there is no such axis.
    """
    found = tensors.require_known(name, "axis", axis)
    if isinstance(found, tuple):
        # TensorFlow takes a list of one axis for the axis.
        (found,) = found if len(found) == 1 else (None,)
    if found is None or not -rank <= found < rank:
        raise errors.InvalidArgumentError(
            f"{name} expects an axis in the range [{-rank}, {rank}), received {axis}."
        )
    return int(found % rank)


def check_bounds(
    name: str, indices: jax.Array, size: int | Sequence[int], low: int = 0
) -> None:
    """Raises `InvalidArgumentError` unless known positions are from `low` to `size`."""
    # In a program positions are not known yet, and accelerators do not check them, as
    # in TensorFlow.
    if jax_tapes.is_traced(indices):
        return
    known = np.asarray(indices)
    wrong = (known < low) | (known >= np.asarray(size))
    if wrong.any():
        where = tuple(map(int, np.argwhere(wrong)[0]))
        limit = np.broadcast_to(np.asarray(size), known.shape)[where]
        raise errors.InvalidArgumentError(
            f"indices{list(where) or ''} = {known[where]} is not in [0, {limit}) in "
            f"{name}."
        )


_Function = Callable[..., jax.Array]
Axes = tuple[int, ...] | None


def find_axes(name: str, axis: Sizes | None, rank: int) -> tuple[int, ...] | None:
    """Returns the axes of a reduction as positive numbers; None for all of them.

    Raises:
        InvalidArgumentError: there is no such axis.
    """
    if axis is None:
        return None
    found = tensors.sizes(name, "axis", axis)
    for i in found:
        if not -rank <= i < rank:
            raise errors.InvalidArgumentError(
                f"Invalid reduction dimension: {name} of an array with {rank} axes "
                f"received axis {i}."
            )
    return tuple(i % rank for i in found)


class Reduction(Protocol):
    """A function that reduces an array over axes."""

    def __call__(
        self,
        input_tensor: TensorLike,
        axis: Sizes | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> jax.Array:
        """Returns an array without these axes."""


def reduction(
    path: str, *also: str, allowed: str = kinds.NUMBERS
) -> Callable[[_Function], Reduction]:
    """Returns a decorator that makes a reduction of what reduces a checked array.

    Args:
        path: TensorFlow's path of the reduction.
        *also: its further paths.
        allowed: the kinds of elements that it takes.
    """
    called = path.rpartition(".")[2]

    def give(fn: _Function) -> Reduction:
        def call(
            input_tensor: TensorLike,
            axis: Sizes | None = None,
            keepdims: bool = False,
            name: str | None = None,
        ) -> jax.Array:
            return _reduce(called, fn, input_tensor, axis, keepdims, allowed)

        call.__doc__ = fn.__doc__
        return array_function(path, *also)(call)

    return give


@tensors.folds_constants
def _reduce(
    name: str,
    fn: _Function,
    x: TensorLike,
    axis: Sizes | None,
    keepdims: bool,
    allowed: str,
) -> jax.Array:
    """Returns a reduction over axes.

    Args:
        name: the name that the program calls.
        fn: the function of JAX, with the arguments `axis` and `keepdims`.
        x: array-like.
        axis: one axis or several; None for all.
        keepdims: whether the axes stay, with size 1.
        allowed: the kinds of elements that it takes.

    Raises:
        InvalidArgumentError: the elements are of another kind, or there is no such
            axis.
    """
    if allowed == kinds.BOOL:
        x = elementwise.as_bools(name, x)
    x = tensors.tensor(x)
    kinds.check(name, x.dtype, allowed)
    axes = find_axes(name, axis, x.ndim)
    return fn(x, axis=axes, keepdims=bool(keepdims))


def add_up(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the sum, of the type of the elements."""
    # If JAX is given the type of the result, it also adds in it.
    return jnp.sum(x, axis, keepdims=keepdims).astype(x.dtype)


def multiply(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the product, of the type of the elements."""
    return jnp.prod(x, axis, keepdims=keepdims).astype(x.dtype)


def mean(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the mean, of the type of the elements; that of integers is cut off."""
    if kinds.kind(x.dtype) != "i":
        return jnp.mean(x, axis, keepdims=keepdims)
    axes = range(x.ndim) if axis is None else axis
    count = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
    # The sum of integers may not fit their type, and the mean does.
    with jax.enable_x64(True):
        wide = jnp.uint64 if x.dtype.kind == "u" else jnp.int64
        total = jnp.sum(x.astype(wide), axis, keepdims=keepdims)
        # XLA's division of integers rounds toward zero, as TensorFlow's mean does.
        found = jax.lax.div(total, jnp.full_like(total, count)) if count else total
        return found.astype(x.dtype)


def variance(
    name: str, x: TensorLike, axis: Sizes | None, keepdims: bool | None
) -> jax.Array:
    """Returns the mean squared distance from the mean.

    Raises:
        TypeError: the elements are integers.
    """
    x = tensors.tensor(x)
    kinds.require_float(name, x.dtype)
    axes = find_axes(name, axis, x.ndim)
    return jnp.var(x, axes, keepdims=bool(keepdims))


def position(
    name: str, fn: _Function, x: TensorLike, axis: int | None, dtype: DType
) -> jax.Array:
    """Returns the positions of the largest or smallest elements along an axis.

    Raises:
        InvalidArgumentError: there is no such axis, or it is empty.
    """
    x = tensors.tensor(x)
    kinds.check(name, x.dtype, kinds.ALL)
    along = 0 if axis is None else tensors.require_known(name, "axis", axis)
    if not -x.ndim <= along < x.ndim:
        raise errors.InvalidArgumentError(
            f"Expected dimension in the range [{-x.ndim}, {x.ndim}), but got {along} "
            f"in {name}."
        )
    if x.shape[along] == 0:
        raise errors.InvalidArgumentError(
            f"Reduction axis {along} is empty in shape {list(x.shape)} in {name}."
        )
    if x.dtype == dtypes.bool:
        x = x.astype(jnp.int32)
    if kinds.kind(x.dtype) == "f":
        # JAX and NumPy return the position of NaN, and TensorFlow passes over it.
        x = jnp.where(jnp.isnan(x), -np.inf if fn is jnp.argmax else np.inf, x)
    return fn(x, along).astype(tensors.canonical_type(dtype))


def cumulate(
    name: str,
    fn: _Function,
    start: float,
    x: TensorLike,
    axis: int,
    exclusive: bool,
    back: bool,
) -> jax.Array:
    """Returns running sums, products or the like along an axis.

    Args:
        name: the name that the program calls.
        fn: the function of JAX, of an array and an axis.
        start: what an exclusive one begins with.
        x: array-like.
        axis: the axis.
        exclusive: whether an element does not count for its own place.
        back: whether to begin at the end.
    """
    x = tensors.tensor(x)
    kinds.check(name, x.dtype, kinds.FLOAT if np.isinf(start) else kinds.NUMBERS)
    along = tensors.require_known(name, "axis", axis)
    if not -x.ndim <= along < x.ndim:
        raise errors.InvalidArgumentError(
            f"{name}: Expected scan axis in the range [{-x.ndim}, {x.ndim}), but got "
            f"{along}."
        )
    x = jnp.flip(x, along) if back else x
    found = fn(x, along)
    if exclusive and x.shape[along]:
        shape = [*x.shape]
        shape[along] = 1
        first = jnp.full(shape, start, x.dtype)
        # All but the last result, moved on by one place.
        kept = jax.lax.slice_in_dim(found, 0, x.shape[along] - 1, axis=along % x.ndim)
        found = jnp.concatenate([first, kept], along)
    return jnp.flip(found, along) if back else found


def running_sum(x: jax.Array, axis: int) -> jax.Array:
    """Returns running sums, of the type of the elements."""
    return jnp.cumsum(x, axis, x.dtype)


def running_product(x: jax.Array, axis: int) -> jax.Array:
    """Returns running products, of the type of the elements."""
    return jnp.cumprod(x, axis, x.dtype)


def running_logsumexp(x: jax.Array, axis: int) -> jax.Array:
    """Returns the logarithms of running sums of exponentials."""
    return jax.lax.cumlogsumexp(x, axis % x.ndim)
