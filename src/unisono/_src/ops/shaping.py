"""Changes the shape and the order of arrays, joins them and splits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import kinds, tensors


def find_axis(name: str, axis: Any, rank: int) -> int:
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


def reshape(x: Any, shape: Any) -> jax.Array:
    """Returns the elements in another shape, in which one size may be -1."""
    found = tensors.tensor(x)
    return tensors.call(
        "reshape", jnp.reshape, found, tensors.sizes("reshape", "shape", shape)
    )


def broadcast_to(x: Any, shape: Any) -> jax.Array:
    """Returns an array repeated along axes of size 1 and new first axes."""
    sizes = tensors.sizes("broadcast_to", "shape", shape)
    return tensors.call("broadcast_to", jnp.broadcast_to, tensors.tensor(x), sizes)


def transpose(a: Any, perm: Any, conjugate: Any) -> jax.Array:
    """Returns an array with its axes in another order, by default the opposite."""
    found = tensors.tensor(a)
    order = None if perm is None else tensors.sizes("transpose", "perm", perm)
    made = tensors.call("transpose", jnp.transpose, found, order)
    return jnp.conj(made) if conjugate else made


def concat(values: Any, axis: Any) -> jax.Array:
    """Returns arrays one after the other along an axis."""
    parts = list(values) if isinstance(values, (list, tuple)) else [values]
    found = _to_common_type("concat", parts)
    if len(found) == 1:
        return jnp.asarray(found[0])
    if any(x.ndim == 0 for x in found):
        raise errors.InvalidArgumentError(
            "concat takes arrays with axes, received a scalar; use unisono.stack."
        )
    along = find_axis("concat", axis, found[0].ndim)
    return tensors.call("concat", jnp.concatenate, found, along)


def _to_common_type(name: str, parts: Sequence[Any]) -> list[Any]:
    """Returns arrays of one type; without an array, the widest of the numbers'."""
    if any(isinstance(tensors.unwrap(x), jax.Array) or tensors.has_arrays(x)
           for x in parts):  # fmt: skip
        return tensors.to_one_type(name, *parts)
    found = [tensors.tensor(x) for x in parts]
    # Python's numbers have no type yet: [1, 2.0] becomes floats, as in TensorFlow.
    widest = max(found, key=lambda x: kinds.ALL.index(kinds.kind(x.dtype)))
    return [tensors.tensor(x, widest.dtype) for x in parts]


def stack(values: Any, axis: Any) -> jax.Array:
    """Returns arrays of one shape side by side along a new axis."""
    parts = list(values)
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


def unstack(value: Any, num: Any, axis: Any) -> list[jax.Array]:
    """Returns the parts of an array along an axis, without that axis.

    Raises:
        ValueError: there are not `num` parts.
    """
    found = tensors.tensor(value)
    along = find_axis("unstack", axis, found.ndim)
    if num is not None and num != found.shape[along]:
        raise ValueError(
            f"unstack along axis {axis} gives {found.shape[along]} arrays, but num is "
            f"{num}."
        )
    return list(jnp.unstack(found, axis=along))


def split(value: Any, parts: Any, axis: Any, num: Any) -> list[jax.Array]:
    """Returns the parts of an array: a number of equal ones, or of given sizes."""
    found = tensors.tensor(value)
    along = find_axis("split", axis, found.ndim)
    size = found.shape[along]
    wanted = tensors.require_known("split", "num_or_size_splits", parts)
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


def tile(x: Any, multiples: Any) -> jax.Array:
    """Returns an array repeated as a whole along each axis."""
    found = tensors.tensor(x)
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


def repeat(x: Any, repeats: Any, axis: Any) -> jax.Array:
    """Returns an array in which every element along an axis is repeated."""
    found = tensors.tensor(x)
    times = tensors.require_known("repeat", "repeats", repeats)
    along = axis if axis is None else find_axis("repeat", axis, found.ndim)
    return tensors.call("repeat", jnp.repeat, found, np.asarray(times), axis=along)


def squeeze(x: Any, axis: Any) -> jax.Array:
    """Returns an array without its axes of size 1, or without some of them."""
    found = tensors.tensor(x)
    axes = None if axis is None else tensors.sizes("squeeze", "axis", axis)
    # An empty list means all axes, as in TensorFlow.
    return tensors.call("squeeze", jnp.squeeze, found, axes or None)


def expand_dims(x: Any, axis: Any) -> jax.Array:
    """Returns an array with one more axis of size 1."""
    found = tensors.tensor(x)
    along = find_axis("expand_dims", axis, found.ndim + 1)
    return jnp.expand_dims(found, along)


_MODES = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric"}


def pad(x: Any, paddings: Any, mode: str, value: Any) -> jax.Array:
    """Returns an array with more elements before and after it along each axis.

    Raises:
        ValueError: the mode is unknown.
    """
    found = tensors.tensor(x)
    widths = tensors.require_known("pad", "paddings", paddings)
    kind = _MODES.get(mode.upper())
    if kind is None:
        raise ValueError(
            "Value of argument `mode` expected to be one of 'CONSTANT', 'REFLECT' or "
            f"'SYMMETRIC'. Received `mode` = {mode}."
        )
    if np.shape(widths) != (found.ndim, 2) and found.ndim:
        raise errors.InvalidArgumentError(
            f"pad takes a pair of paddings for each of {found.ndim} axes, received "
            f"{widths}."
        )
    if kind != "constant":
        return _mirror(found, widths, kind)
    # The default fits every type, bools too.
    is_zero = isinstance(value, int) and value == 0
    filler = tensors.to_one_type("pad", found, value)[1] if not is_zero else False
    return tensors.call("pad", jnp.pad, found, widths, constant_values=filler)


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


def reverse(x: Any, axis: Any) -> jax.Array:
    """Returns an array in the opposite order along axes."""
    found = tensors.tensor(x)
    axes = tensors.require_known("reverse", "axis", axis)
    if not isinstance(axes, tuple):
        raise errors.InvalidArgumentError(
            f"axis of reverse is a list of axes, received {axis!r}."
        )
    return tensors.call("reverse", jnp.flip, found, axes) if axes else found


def roll(x: Any, shift: Any, axis: Any) -> jax.Array:
    """Returns an array with elements moved along axes; the last ones come first."""
    found = tensors.tensor(x)
    axes = tensors.sizes("roll", "axis", axis)
    # A program may compute the shifts; only the axes must be known.
    moves = tensors.tensor(shift).reshape(-1)
    for i, along in enumerate(axes):
        place = find_axis("roll", along, found.ndim)
        found = tensors.call("roll", jnp.roll, found, moves[i], place)
    return found


def reverse_sequence(x: Any, lengths: Any, axis: Any, batch: Any) -> jax.Array:
    """Returns rows; the first elements of each, up to its length, are reversed."""
    found = tensors.tensor(x)
    sizes = tensors.tensor(lengths)
    along = find_axis("reverse_sequence", axis, found.ndim)
    rows = find_axis("reverse_sequence", 0 if batch is None else batch, found.ndim)
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


def meshgrid(*args: Any, **kwargs: Any) -> list[jax.Array]:
    """Returns the coordinates of a grid, one array for each axis.

    Args:
        *args: the coordinates along each axis.
        **kwargs: `indexing` ("xy" or "ij"); `name` has no effect.

    Raises:
        TypeError: an argument is unknown.
        ValueError: `indexing` is neither.

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


def cut(x: Any, begin: Any, size: Any) -> jax.Array:
    """Returns a part of an array: from `begin` on, of a size; -1 is all the rest.

    Raises:
        InvalidArgumentError: the part is not within the array.
    """
    found = tensors.tensor(x)
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


def strided_slice(
    x: Any,
    begin: Any,
    end: Any,
    strides: Any,
    masks: Sequence[int],
) -> jax.Array:
    """Returns ``x[begin:end:strides]``, with masks for parts that are left out.

    Args:
        x: array-like.
        begin: the first position along each axis.
        end: the position after the last one.
        strides: the distances; None for 1.
        masks: TensorFlow's masks: begin, end, ellipsis, new axis, shrink axis. A bit
            of a mask stands for an entry of `begin`.
    """
    found = tensors.tensor(x)
    first = tensors.sizes("strided_slice", "begin", begin)
    last = tensors.sizes("strided_slice", "end", end)
    step = (1,) * len(first)
    if strides is not None:
        step = tensors.sizes("strided_slice", "strides", strides)
    # If bits of several masks are set for one entry, the first of these
    # tests wins, as in TensorFlow.
    no_begin, no_end, ellipsis, new_axis, shrink = masks
    key: list[Any] = []
    for i, (low, high, stride) in enumerate(zip(first, last, step, strict=True)):
        bit = 1 << i
        if ellipsis & bit:
            key.append(Ellipsis)
        elif new_axis & bit:
            key.append(None)
        elif shrink & bit:
            key.append(low)
        else:
            key.append(
                slice(
                    None if no_begin & bit else low,
                    None if no_end & bit else high,
                    stride,
                )
            )
    if 0 in step:
        raise errors.InvalidArgumentError("strides of strided_slice must not be 0.")
    return tensors.call("strided_slice", lambda: _pick(found, tuple(key)))


def _pick(x: jax.Array, key: tuple[Any, ...]) -> jax.Array:
    """Returns ``x[key]``, which JAX would clamp where a position is not there."""
    # NumPy raises for such a position. The array takes no memory: it has one element.
    np.broadcast_to(np.zeros(()), x.shape)[key]
    return x[key]


def ensure_shape(x: Any, shape: Any) -> jax.Array:
    """Returns an array after checking its shape, in which None fits any size."""
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


def space_to_depth(x: Any, block: Any, data_format: str) -> jax.Array:
    """Returns images in which blocks of pixels have become channels."""
    found = tensors.tensor(x)
    image = _move_channels_last("space_to_depth", found, data_format)
    n, h, w, c = image.shape
    if h % block or w % block:
        raise errors.InvalidArgumentError(
            f"space_to_depth: {h}×{w} pixels cannot be divided in blocks of {block}."
        )
    # Batch, row of blocks, row in its block, column of blocks, column in its block,
    # channel; then the two within a block go to the channels.
    parts = image.reshape(n, h // block, block, w // block, block, c)
    made = parts.transpose(0, 1, 3, 2, 4, 5)
    made = made.reshape(n, h // block, w // block, block * block * c)
    return _restore_channels(made, data_format)


def depth_to_space(x: Any, block: Any, data_format: str) -> jax.Array:
    """Returns images in which channels have become blocks of pixels."""
    found = tensors.tensor(x)
    image = _move_channels_last("depth_to_space", found, data_format)
    n, h, w, c = image.shape
    if c % (block * block):
        raise errors.InvalidArgumentError(
            f"depth_to_space: {c} channels cannot be divided by {block * block}."
        )
    # The other way round: the channels are row and column in a block, and the rest.
    parts = image.reshape(n, h, w, block, block, c // block**2)
    made = parts.transpose(0, 1, 3, 2, 4, 5)
    made = made.reshape(n, h * block, w * block, c // block**2)
    return _restore_channels(made, data_format)


def _move_channels_last(name: str, x: jax.Array, data_format: str) -> jax.Array:
    if x.ndim != 4 or data_format not in ("NHWC", "NCHW"):
        raise errors.InvalidArgumentError(
            f"{name} takes images of four axes as NHWC or NCHW, received the shape "
            f"{list(x.shape)} as {data_format}."
        )
    return x if data_format == "NHWC" else x.transpose(0, 2, 3, 1)


def _restore_channels(x: jax.Array, data_format: str) -> jax.Array:
    return x if data_format == "NHWC" else x.transpose(0, 3, 1, 2)
