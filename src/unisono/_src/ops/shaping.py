"""Changes the shape and the order of arrays, joins them and splits them."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import axis_functions, kinds, tensors
from unisono._src.ops.host import frequent_arguments
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import Sizes, TensorLike

__all__ = [
    "broadcast_to",
    "concat",
    "ensure_shape",
    "expand_dims",
    "meshgrid",
    "pad",
    "repeat",
    "reshape",
    "reverse",
    "reverse_sequence",
    "roll",
    "slice",
    "split",
    "squeeze",
    "stack",
    "strided_slice",
    "tile",
    "transpose",
    "unstack",
]

_MODES = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric"}


@array_function("reshape", quick=frequent_arguments.reshape)
@tensors.folds_constants
@tensors.makes_new_arrays
def reshape(tensor: TensorLike, shape: Sizes, name: str | None = None) -> jax.Array:
    """Returns an array in another shape; one size may be -1.

    >>> reshape([1, 2, 3, 4], [2, -1]).tolist()
    [[1, 2], [3, 4]]
    """
    found = tensors.tensor(tensor)
    return tensors.call(
        "reshape", jnp.reshape, found, tensors.sizes("reshape", "shape", shape)
    )


@array_function("transpose")
@tensors.makes_new_arrays
def transpose(
    a: TensorLike,
    perm: Sizes | None = None,
    conjugate: bool = False,
    name: str | None = "transpose",
) -> jax.Array:
    """Returns an array with its axes in another order."""
    found = tensors.tensor(a)
    order = None if perm is None else tensors.sizes("transpose", "perm", perm)
    made = tensors.call("transpose", jnp.transpose, found, order)
    return jnp.conj(made) if conjugate else made


@array_function("concat")
@tensors.folds_constants
def concat(
    values: Sequence[TensorLike] | TensorLike, axis: int, name: str | None = "concat"
) -> jax.Array:
    """Returns arrays concatenated along an axis.

    >>> concat([[1], [2, 3]], 0).tolist()
    [1, 2, 3]
    """
    parts = list(values) if isinstance(values, (list, tuple)) else [values]
    found = _to_common_type("concat", parts)
    if len(found) == 1:
        return tensors.renew(jnp.asarray(found[0]))
    if any(x.ndim == 0 for x in found):
        raise errors.InvalidArgumentError(
            "concat takes arrays with axes, received a scalar; use unisono.stack."
        )
    along = axis_functions.find_axis("concat", axis, found[0].ndim)
    return tensors.call("concat", jnp.concatenate, found, along)


@array_function("stack", quick=frequent_arguments.stack_numbers)
@tensors.folds_constants
def stack(
    values: Sequence[TensorLike] | TensorLike, axis: int = 0, name: str | None = "stack"
) -> jax.Array:
    """Returns arrays stacked along a new axis."""
    parts = list(cast("Iterable[TensorLike]", values))
    if not parts:
        raise errors.InvalidArgumentError("stack takes at least one array.")
    found = _to_common_type("stack", parts)
    if len({x.shape for x in found}) > 1:
        shapes = ", ".join(str(list(x.shape)) for x in found)
        raise errors.InvalidArgumentError(
            f"Shapes of all inputs must match in stack, received {shapes}."
        )
    along = tensors.require_known("stack", "axis", axis)
    return tensors.call("stack", jnp.stack, found, along)


@array_function("unstack")
def unstack(
    value: TensorLike,
    num: int | None = None,
    axis: int = 0,
    name: str | None = "unstack",
) -> list[jax.Array]:
    """Returns the slices of an array along an axis, as a list.

    Raises:
        ValueError: the number of slices is not `num`.
    """
    found = tensors.tensor(value)
    along = axis_functions.find_axis("unstack", axis, found.ndim)
    if num is not None and num != found.shape[along]:
        raise ValueError(
            f"unstack along axis {axis} gives {found.shape[along]} arrays, but num is "
            f"{num}."
        )
    return list(jnp.unstack(found, axis=along))


@array_function("split")
def split(
    value: TensorLike,
    num_or_size_splits: Sizes,
    axis: int = 0,
    num: int | None = None,
    name: str | None = "split",
) -> list[jax.Array]:
    """Returns the parts of an array along an axis, as a list.

    >>> [x.tolist() for x in split([1, 2, 3], [1, 2])]
    [[1], [2, 3]]
    """
    found = tensors.tensor(value)
    along = axis_functions.find_axis("split", axis, found.ndim)
    size = found.shape[along]
    wanted = tensors.require_known("split", "num_or_size_splits", num_or_size_splits)
    if not isinstance(wanted, tuple):
        if wanted < 1 or size % wanted:
            raise errors.InvalidArgumentError(
                "Number of ways to split should evenly divide the split dimension, but "
                f"got split_dim {along} (size = {size}) and num_split {wanted}."
            )
        return list(jnp.split(found, wanted, along))
    known = sum(part for part in wanted if part != -1)
    # One part may be -1, for the rest; with two of them the sum does not fit.
    sizes = [size - known if part == -1 else part for part in wanted]
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise errors.InvalidArgumentError(
            f"The sizes {list(wanted)} of split do not add up to {size}, the size of "
            f"axis {along}."
        )
    return list(jnp.split(found, np.cumsum(sizes)[:-1].tolist(), along))


@array_function("tile")
def tile(input: TensorLike, multiples: Sizes, name: str | None = None) -> jax.Array:
    """Returns an array that is repeated as a whole along each axis."""
    found = tensors.tensor(input)
    wanted = tensors.require_known("tile", "multiples", multiples)
    if not isinstance(wanted, tuple) or len(wanted) != found.ndim:
        raise errors.InvalidArgumentError(
            f"Expected multiples argument to be a vector of length {found.ndim}, "
            f"received {multiples!r}."
        )
    if min(wanted, default=0) < 0:
        raise errors.InvalidArgumentError(
            f"Expected multiples >= 0 in tile, received {list(wanted)}."
        )
    return jnp.tile(found, wanted)


@array_function("repeat")
def repeat(
    input: TensorLike, repeats: Sizes, axis: int | None = None, name: str | None = None
) -> jax.Array:
    """Returns an array in which every element is repeated."""
    found = tensors.tensor(input)
    times = tensors.require_known("repeat", "repeats", repeats)
    along = (
        axis if axis is None else axis_functions.find_axis("repeat", axis, found.ndim)
    )
    return tensors.call("repeat", jnp.repeat, found, np.asarray(times), axis=along)


@array_function("squeeze")
@tensors.folds_constants
def squeeze(
    input: TensorLike, axis: Sizes | None = None, name: str | None = None
) -> jax.Array:
    """Returns an array without axes of size 1."""
    found = tensors.tensor(input)
    axes = None if axis is None else tensors.sizes("squeeze", "axis", axis)
    # An empty list means all axes, as in TensorFlow.
    return tensors.call("squeeze", jnp.squeeze, found, axes or None)


@array_function("expand_dims")
@tensors.folds_constants
def expand_dims(input: TensorLike, axis: int, name: str | None = None) -> jax.Array:
    """Returns an array with one more axis of size 1."""
    found = tensors.tensor(input)
    along = axis_functions.find_axis("expand_dims", axis, found.ndim + 1)
    return jnp.expand_dims(found, along)


@array_function("broadcast_to")
@tensors.makes_new_arrays
def broadcast_to(input: TensorLike, shape: Sizes, name: str | None = None) -> jax.Array:
    """Returns an array that is broadcast to another shape."""
    sizes = tensors.sizes("broadcast_to", "shape", shape)
    return tensors.call("broadcast_to", jnp.broadcast_to, tensors.tensor(input), sizes)


@array_function("pad", quick=frequent_arguments.pad_with_zeros)
def pad(
    tensor: TensorLike,
    paddings: Sizes,
    mode: str = "CONSTANT",
    constant_values: TensorLike = 0,
    name: str | None = None,
) -> jax.Array:
    """Returns an array that is padded before and after its elements.

    Raises:
        ValueError: the mode is unknown.

    >>> pad([1, 2], [[1, 0]]).tolist()
    [0, 1, 2]
    """
    found = tensors.tensor(tensor)
    widths = tensors.require_known("pad", "paddings", paddings)
    kind = _MODES.get(mode.upper())
    if kind is None:
        raise ValueError(
            "Value of argument `mode` expected to be one of 'CONSTANT', 'REFLECT' or "
            f"'SYMMETRIC'. Received `mode` = {mode}."
        )
    # `np.shape` would take longer than all the rest of it on the host.
    if found.ndim and _lengths(widths) != [2] * found.ndim:
        raise errors.InvalidArgumentError(
            f"pad takes a pair of paddings for each of {found.ndim} axes, received "
            f"{widths}."
        )
    if kind != "constant":
        return _mirror(found, widths, kind)
    # The default fits every type, bools too.
    is_zero = isinstance(constant_values, int) and constant_values == 0
    filler = (
        tensors.to_one_type("pad", found, constant_values)[1] if not is_zero else False
    )
    return tensors.call("pad", jnp.pad, found, widths, constant_values=filler)


@array_function("reverse")
@tensors.folds_constants
@tensors.makes_new_arrays
def reverse(tensor: TensorLike, axis: Sizes, name: str | None = None) -> jax.Array:
    """Returns an array that is reversed along axes."""
    found = tensors.tensor(tensor)
    axes = tensors.require_known("reverse", "axis", axis)
    if not isinstance(axes, tuple):
        raise errors.InvalidArgumentError(
            f"axis of reverse is a list of axes, received {axis!r}."
        )
    return tensors.call("reverse", jnp.flip, found, axes) if axes else found


@array_function("roll")
def roll(
    input: TensorLike, shift: TensorLike, axis: Sizes, name: str | None = None
) -> jax.Array:
    """Returns an array whose elements are shifted cyclically along axes."""
    found = tensors.tensor(input)
    axes = tensors.sizes("roll", "axis", axis)
    # A program may compute the shifts; only the axes must be known.
    moves = tensors.tensor(shift).reshape(-1)
    for i, along in enumerate(axes):
        place = axis_functions.find_axis("roll", along, found.ndim)
        found = tensors.call("roll", jnp.roll, found, moves[i], place)
    return found


@array_function("reverse_sequence")
def reverse_sequence(
    input: TensorLike,
    seq_lengths: TensorLike,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns rows whose first `seq_lengths` elements are reversed."""
    found = tensors.tensor(input)
    sizes = tensors.tensor(seq_lengths)
    along = axis_functions.find_axis("reverse_sequence", seq_axis, found.ndim)
    rows = axis_functions.find_axis(
        "reverse_sequence", 0 if batch_axis is None else batch_axis, found.ndim
    )
    if sizes.shape != (found.shape[rows],):
        raise errors.InvalidArgumentError(
            f"reverse_sequence takes {found.shape[rows]} lengths, received an array of "
            f"shape {list(sizes.shape)}."
        )
    if not tensors.is_traced_tree(sizes) and np.any(
        np.asarray(sizes) > found.shape[along]
    ):
        raise errors.InvalidArgumentError(
            f"reverse_sequence: a length is greater than the size {found.shape[along]} "
            f"of axis {along}."
        )
    shape = [1] * found.ndim
    shape[along] = found.shape[along]
    place = jnp.arange(found.shape[along]).reshape(shape)
    shape = [1] * found.ndim
    shape[rows] = found.shape[rows]
    count = sizes.reshape(shape).astype(place.dtype)
    # Where each element comes from: mirrored up to the length, in place after it.
    source = jnp.where(place < count, count - 1 - place, place)
    return jnp.take_along_axis(found, jnp.broadcast_to(source, found.shape), along)


@array_function("meshgrid")
def meshgrid(*args: TensorLike, **kwargs: str) -> list[jax.Array]:
    """Returns the coordinates of a grid, one array for each axis.

    Args:
        *args: the coordinates along each axis.
        **kwargs: `indexing` ("xy" or "ij"); `name` has no effect.

    Raises:
        TypeError: a keyword argument is unknown.
        ValueError: `indexing` is neither "xy" nor "ij".

    >>> [x.tolist() for x in meshgrid([1, 2], [3, 4, 5])]
    [[[1, 2], [1, 2], [1, 2]], [[3, 3], [4, 4], [5, 5]]]
    """
    indexing = kwargs.pop("indexing", "xy")
    kwargs.pop("name", None)
    if kwargs:
        raise TypeError(
            f"'{next(iter(kwargs))}' is an invalid keyword argument for this function."
        )
    if indexing not in ("xy", "ij"):
        raise ValueError(
            f"Argument `indexing` parameter must be either 'xy' or 'ij', got "
            f"'{indexing}'."
        )
    found = [tensors.tensor(x).reshape(-1) for x in args]
    return list(jnp.meshgrid(*found, indexing=indexing))


@array_function("slice")
@tensors.folds_constants
def slice(
    input_: TensorLike, begin: Sizes, size: Sizes, name: str | None = None
) -> jax.Array:
    """Returns the part of an array that starts at `begin` and has the shape `size`.

    Raises:
        InvalidArgumentError: the part is not within the array.

    >>> slice([1, 2, 3, 4], [1], [2]).tolist()
    [2, 3]
    """
    found = tensors.tensor(input_)
    wanted = tensors.sizes("slice", "size", size)
    starts = tensors.unwrap(begin)
    if len(wanted) != found.ndim:
        raise errors.InvalidArgumentError(
            f"slice takes {found.ndim} sizes, one for each axis, received "
            f"{list(wanted)}."
        )
    # A program may compute where the part begins, but not how large it is.
    if -1 not in wanted and tensors.is_traced_tree(starts):
        parts = tensors.tensor(starts)
        # JAX moves a part that would leave the array back into
        # it; nothing can raise then.
        return jax.lax.dynamic_slice(found, tuple(parts), wanted)
    first = tensors.sizes("slice", "begin", starts)
    sizes = [n - b if s == -1 else s
             for n, b, s in zip(found.shape, first, wanted, strict=True)]  # fmt: skip
    for n, b, s in zip(found.shape, first, sizes, strict=True):
        if b < 0 or s < 0 or b + s > n:
            raise errors.InvalidArgumentError(
                f"Expected begin and size within an axis of size {n} in slice, "
                f"received begin {b} and size {s}."
            )
    ends = [b + s for b, s in zip(first, sizes, strict=True)]
    return jax.lax.slice(found, first, ends)


@array_function("strided_slice")
def strided_slice(
    input_: TensorLike,
    begin: Sizes,
    end: Sizes,
    strides: Sizes | None = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: object = None,
    name: str | None = None,
) -> jax.Array:
    """Returns ``input_[begin:end:strides]``.

    Each bit of a mask belongs to one entry of `begin`. If it is set, that entry has no
    begin or no end, is an ellipsis or a new axis, or is a single position, whose axis
    is removed.
    """
    found = tensors.tensor(input_)
    first = tensors.sizes("strided_slice", "begin", begin)
    last = tensors.sizes("strided_slice", "end", end)
    step = (1,) * len(first)
    if strides is not None:
        step = tensors.sizes("strided_slice", "strides", strides)
    # If bits of several masks are set for one entry, the first of these
    # tests wins, as in TensorFlow.
    key: list[Any] = []
    for i, (low, high, stride) in enumerate(zip(first, last, step, strict=True)):
        bit = 1 << i
        if ellipsis_mask & bit:
            key.append(Ellipsis)
        elif new_axis_mask & bit:
            key.append(None)
        elif shrink_axis_mask & bit:
            key.append(low)
        else:
            key.append(
                builtins.slice(
                    None if begin_mask & bit else low,
                    None if end_mask & bit else high,
                    stride,
                )
            )
    if 0 in step:
        raise errors.InvalidArgumentError("strides of strided_slice must not be 0.")
    return tensors.call("strided_slice", lambda: _pick(found, tuple(key)))


@array_function("ensure_shape")
@tensors.makes_new_arrays
def ensure_shape(
    x: TensorLike, shape: Sequence[int | None], name: str | None = None
) -> jax.Array:
    """Returns an array after checking its shape."""
    found = tensors.tensor(x)
    wanted = tuple(shape)
    fits = len(wanted) == found.ndim and all(
        a is None or a == b for a, b in zip(wanted, found.shape, strict=True)
    )
    if not fits:
        raise errors.InvalidArgumentError(
            f"Shape of tensor {list(found.shape)} is not compatible with expected "
            f"shape {list(wanted)}."
        )
    return found


def _to_common_type(name: str, parts: Sequence[Any]) -> list[Any]:
    """Returns arrays of one type; without an array, the widest of the numbers'."""
    if any(isinstance(tensors.unwrap(x), jax.Array) or tensors.has_arrays(x)
           for x in parts):  # fmt: skip
        return tensors.to_one_type(name, *parts)
    found = [tensors.tensor(x) for x in parts]
    if len({x.dtype for x in found}) == 1:
        return found
    # Python's numbers have no type yet: [1, 2.0] becomes floats, as in TensorFlow.
    widest = max(found, key=lambda x: kinds.ALL.index(kinds.kind(x.dtype)))
    return [tensors.tensor(x, widest.dtype) for x in parts]


def _lengths(x: object) -> list[int]:
    """Returns the lengths of the tuples in a tuple; nothing for anything else."""
    if not isinstance(x, tuple):
        return []
    return [len(part) if isinstance(part, tuple) else 0 for part in x]


def _mirror(x: jax.Array, widths: Any, kind: str) -> jax.Array:
    """Returns an array with its own elements, mirrored, around it."""
    # "reflect" does not repeat the element at the edge. NumPy would go on reflecting
    # where TensorFlow raises.
    room = 1 if kind == "reflect" else 0
    for size, pair in zip(x.shape, widths, strict=True):
        if max(pair) > size - room:
            raise errors.InvalidArgumentError(
                f"paddings must be no greater than the dimension size: {pair} greater "
                f"than {size - room}."
            )
    return tensors.call("pad", jnp.pad, x, widths, mode=kind)


def _pick(x: jax.Array, key: tuple[Any, ...]) -> jax.Array:
    """Returns ``x[key]``, which JAX would clamp where a position is not there."""
    # NumPy raises for such a position. The array takes no memory: it has one element.
    np.broadcast_to(np.zeros(()), x.shape)[key]
    return x[key]
