"""Arrays: making them, their shapes, joining and parting."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

from collections.abc import Sequence

import jax

from unisono._src.foundation import dtypes
from unisono._src.foundation.public_names import publish
from unisono._src.ops import making, shaping, tensors
from unisono._src.ops.tensors import DType, Sizes, TensorLike


def constant(
    value: TensorLike,
    dtype: DType = None,
    shape: Sizes | None = None,
    name: str | None = "Const",
) -> jax.Array:
    """Returns an array of the given numbers.

    The arguments are those of TensorFlow's ``tf.constant``; `name` has no effect.

    Types of 64 bits become those of 32 bits unless JAX has them, with a warning; a
    number that does not fit is an `OverflowError`.

    >>> constant([1, 2]).dtype.name, constant(1.5).dtype.name
    ('int32', 'float32')
    """
    return making.constant(value, dtype, shape)


def convert_to_tensor(
    value: TensorLike,
    dtype: DType = None,
    dtype_hint: DType = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the array of a number, list, variable or array.

    The arguments are those of TensorFlow's ``tf.convert_to_tensor``; `name` has no
    effect.

    Types of 64 bits become those of 32 bits unless JAX has them, with a warning; a
    number that does not fit is an `OverflowError`.
    """
    return making.convert(value, dtype, dtype_hint)


def identity(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns a new array of the same elements.

    The arguments are those of TensorFlow's ``tf.identity``; `name` has no effect.
    """
    return making.identity(input)


def cast(x: TensorLike, dtype: DType, name: str | None = None) -> jax.Array:
    """Returns the elements in another type.

    The arguments are those of TensorFlow's ``tf.cast``; `name` has no effect.

    A float beyond the range of a type of integers becomes its limit, and NaN becomes 0;
    in TensorFlow both are undefined.

    >>> cast([0.5, -1.7], "int32").tolist()
    [0, -1]
    """
    return tensors.fold_constants(making.cast, x, dtype)


def saturate_cast(
    value: TensorLike, dtype: DType, name: str | None = None
) -> jax.Array:
    """Returns the elements in another type, within its limits.

    The arguments are those of TensorFlow's ``tf.saturate_cast``; `name` has no effect.
    """
    return making.saturate_cast(value, dtype)


def zeros(
    shape: Sizes,
    dtype: DType = dtypes.float32,
    name: str | None = None,
    layout: object = None,
) -> jax.Array:
    """Returns an array of zeros.

    The arguments are those of TensorFlow's ``tf.zeros``; `name` has no effect.

    >>> zeros([2, 3]).shape
    (2, 3)
    """
    return making.full("zeros", shape, 0, dtype)


def ones(
    shape: Sizes,
    dtype: DType = dtypes.float32,
    name: str | None = None,
    layout: object = None,
) -> jax.Array:
    """Returns an array of ones.

    The arguments are those of TensorFlow's ``tf.ones``; `name` has no effect.
    """
    return making.full("ones", shape, 1, dtype)


def fill(
    dims: Sizes, value: TensorLike, name: str | None = None, layout: object = None
) -> jax.Array:
    """Returns an array with one value everywhere.

    The arguments are those of TensorFlow's ``tf.fill``; `name` has no effect.
    """
    return making.fill(dims, value)


def zeros_like(
    input: TensorLike,
    dtype: DType = None,
    name: str | None = None,
    layout: object = None,
) -> jax.Array:
    """Returns zeros of the shape and type of an array.

    The arguments are those of TensorFlow's ``tf.zeros_like``; `name` has no effect.
    """
    return making.full_like(input, 0, dtype)


def ones_like(
    input: TensorLike,
    dtype: DType = None,
    name: str | None = None,
    layout: object = None,
) -> jax.Array:
    """Returns ones of the shape and type of an array.

    The arguments are those of TensorFlow's ``tf.ones_like``; `name` has no effect.
    """
    return making.full_like(input, 1, dtype)


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Sizes | None = None,
    dtype: DType = dtypes.float32,
    name: str | None = None,
) -> jax.Array:
    """Returns an identity matrix, or several.

    The arguments are those of TensorFlow's ``tf.eye``; `name` has no effect.
    """
    return making.eye(num_rows, num_columns, batch_shape, dtype)


def range(
    start: TensorLike,
    limit: TensorLike | None = None,
    delta: TensorLike = 1,
    dtype: DType = None,
    name: str | None = "range",
) -> jax.Array:
    """Returns numbers from `start` to before `limit`, `delta` apart.

    The arguments are those of TensorFlow's ``tf.range``; `name` has no effect.

    >>> range(3).tolist(), range(1, 2, 0.5).tolist()
    ([0, 1, 2], [1.0, 1.5])
    """
    return making.count(start, limit, delta, dtype)


def linspace(
    start: TensorLike,
    stop: TensorLike,
    num: int,
    name: str | None = None,
    axis: int = 0,
) -> jax.Array:
    """Returns evenly spaced numbers, both ends included.

    The arguments are those of TensorFlow's ``tf.linspace``; `name` has no effect.

    Between integers the numbers are float32 unless JAX has 64-bit types.
    """
    return making.linspace(start, stop, num, axis)


def one_hot(
    indices: TensorLike,
    depth: int,
    on_value: TensorLike | None = None,
    off_value: TensorLike | None = None,
    axis: int | None = None,
    dtype: DType = None,
    name: str | None = None,
) -> jax.Array:
    """Returns ones at the given positions, and zeros elsewhere.

    The arguments are those of TensorFlow's ``tf.one_hot``; `name` has no effect.

    >>> one_hot([1], 3).tolist()
    [[0.0, 1.0, 0.0]]
    """
    return making.one_hot(indices, depth, on_value, off_value, axis, dtype)


def sequence_mask(
    lengths: TensorLike,
    maxlen: int | None = None,
    dtype: DType = dtypes.bool,
    name: str | None = None,
) -> jax.Array:
    """Returns rows that begin with so many true elements.

    The arguments are those of TensorFlow's ``tf.sequence_mask``; `name` has no effect.

    In a compiled function it needs `maxlen`.
    """
    return making.sequence_mask(lengths, maxlen, dtype)


def shape(
    input: TensorLike, out_type: DType = None, name: str | None = None
) -> jax.Array:
    """Returns the sizes of the axes of an array.

    The arguments are those of TensorFlow's ``tf.shape``; `name` has no effect.

    While a function is compiled it gives NumPy's numbers, because XLA needs sizes that
    are known: they can be a shape again.
    """
    return making.shape(input, out_type)


def size(
    input: TensorLike, out_type: DType = None, name: str | None = None
) -> jax.Array:
    """Returns the number of elements of an array.

    The arguments are those of TensorFlow's ``tf.size``; `name` has no effect.

    While a function is compiled it gives NumPy's numbers, because XLA needs sizes that
    are known: they can be a shape again.
    """
    return making.size(input, out_type)


def rank(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the number of axes of an array.

    The arguments are those of TensorFlow's ``tf.rank``; `name` has no effect.

    While a function is compiled it gives NumPy's numbers, because XLA needs sizes that
    are known: they can be a shape again.
    """
    return making.rank(input)


def stop_gradient(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the same elements, which count as constants.

    The arguments are those of TensorFlow's ``tf.stop_gradient``; `name` has no effect.
    """
    return making.stop_gradient(input)


def reshape(tensor: TensorLike, shape: Sizes, name: str | None = None) -> jax.Array:
    """Returns the elements in another shape; one size may be -1.

    The arguments are those of TensorFlow's ``tf.reshape``; `name` has no effect.

    >>> reshape([1, 2, 3, 4], [2, -1]).tolist()
    [[1, 2], [3, 4]]
    """
    return tensors.fold_constants(shaping.reshape, tensor, shape)


def transpose(
    a: TensorLike,
    perm: Sizes | None = None,
    conjugate: bool = False,
    name: str | None = "transpose",
) -> jax.Array:
    """Returns an array with its axes in another order.

    The arguments are those of TensorFlow's ``tf.transpose``; `name` has no effect.
    """
    return shaping.transpose(a, perm, conjugate)


def concat(
    values: Sequence[TensorLike] | TensorLike, axis: int, name: str | None = "concat"
) -> jax.Array:
    """Returns arrays one after the other along an axis.

    The arguments are those of TensorFlow's ``tf.concat``; `name` has no effect.

    >>> concat([[1], [2, 3]], 0).tolist()
    [1, 2, 3]
    """
    return tensors.fold_constants(shaping.concat, values, axis)


def stack(
    values: Sequence[TensorLike] | TensorLike, axis: int = 0, name: str | None = "stack"
) -> jax.Array:
    """Returns arrays side by side along a new axis.

    The arguments are those of TensorFlow's ``tf.stack``; `name` has no effect.
    """
    return tensors.fold_constants(shaping.stack, values, axis)


def unstack(
    value: TensorLike,
    num: int | None = None,
    axis: int = 0,
    name: str | None = "unstack",
) -> list[jax.Array]:
    """Returns the parts of an array along an axis, as a list.

    The arguments are those of TensorFlow's ``tf.unstack``; `name` has no effect.
    """
    return shaping.unstack(value, num, axis)


def split(
    value: TensorLike,
    num_or_size_splits: Sizes,
    axis: int = 0,
    num: int | None = None,
    name: str | None = "split",
) -> list[jax.Array]:
    """Returns the parts of an array along an axis, as a list.

    The arguments are those of TensorFlow's ``tf.split``; `name` has no effect.

    >>> [x.tolist() for x in split([1, 2, 3], [1, 2])]
    [[1], [2, 3]]
    """
    return shaping.split(value, num_or_size_splits, axis, num)


def tile(input: TensorLike, multiples: Sizes, name: str | None = None) -> jax.Array:
    """Returns an array repeated as a whole along each axis.

    The arguments are those of TensorFlow's ``tf.tile``; `name` has no effect.
    """
    return shaping.tile(input, multiples)


def repeat(
    input: TensorLike, repeats: Sizes, axis: int | None = None, name: str | None = None
) -> jax.Array:
    """Returns an array in which every element is repeated.

    The arguments are those of TensorFlow's ``tf.repeat``; `name` has no effect.
    """
    return shaping.repeat(input, repeats, axis)


def squeeze(
    input: TensorLike, axis: Sizes | None = None, name: str | None = None
) -> jax.Array:
    """Returns an array without axes of size 1.

    The arguments are those of TensorFlow's ``tf.squeeze``; `name` has no effect.
    """
    return tensors.fold_constants(shaping.squeeze, input, axis)


def expand_dims(input: TensorLike, axis: int, name: str | None = None) -> jax.Array:
    """Returns an array with one more axis of size 1.

    The arguments are those of TensorFlow's ``tf.expand_dims``; `name` has no effect.
    """
    return tensors.fold_constants(shaping.expand_dims, input, axis)


def broadcast_to(input: TensorLike, shape: Sizes, name: str | None = None) -> jax.Array:
    """Returns an array repeated to another shape.

    The arguments are those of TensorFlow's ``tf.broadcast_to``; `name` has no effect.
    """
    return shaping.broadcast_to(input, shape)


def pad(
    tensor: TensorLike,
    paddings: Sizes,
    mode: str = "CONSTANT",
    constant_values: TensorLike = 0,
    name: str | None = None,
) -> jax.Array:
    """Returns an array with more elements before and after it.

    The arguments are those of TensorFlow's ``tf.pad``; `name` has no effect.

    >>> pad([1, 2], [[1, 0]]).tolist()
    [0, 1, 2]
    """
    return shaping.pad(tensor, paddings, mode, constant_values)


def reverse(tensor: TensorLike, axis: Sizes, name: str | None = None) -> jax.Array:
    """Returns an array in the opposite order along axes.

    The arguments are those of TensorFlow's ``tf.reverse``; `name` has no effect.
    """
    return tensors.fold_constants(shaping.reverse, tensor, axis)


def roll(
    input: TensorLike, shift: TensorLike, axis: Sizes, name: str | None = None
) -> jax.Array:
    """Returns an array rotated along axes.

    The arguments are those of TensorFlow's ``tf.roll``; `name` has no effect.
    """
    return shaping.roll(input, shift, axis)


def reverse_sequence(
    input: TensorLike,
    seq_lengths: TensorLike,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns rows, the first elements of each reversed.

    The arguments are those of TensorFlow's ``tf.reverse_sequence``; `name` has no
    effect.
    """
    return shaping.reverse_sequence(input, seq_lengths, seq_axis, batch_axis)


def meshgrid(*args: TensorLike, **kwargs: str) -> list[jax.Array]:
    """Returns the coordinates of a grid, one array for each axis.

    The arguments are those of TensorFlow's ``tf.meshgrid``.
    """
    return shaping.meshgrid(*args, **kwargs)


def slice(
    input_: TensorLike, begin: Sizes, size: Sizes, name: str | None = None
) -> jax.Array:
    """Returns a part of an array, from `begin` on.

    The arguments are those of TensorFlow's ``tf.slice``; `name` has no effect.

    >>> slice([1, 2, 3, 4], [1], [2]).tolist()
    [2, 3]
    """
    return tensors.fold_constants(shaping.cut, input_, begin, size)


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

    The arguments are those of TensorFlow's ``tf.strided_slice``; `name` has no effect.
    """
    return shaping.strided_slice(
        input_,
        begin,
        end,
        strides,
        (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask),
    )


def ensure_shape(
    x: TensorLike, shape: Sequence[int | None], name: str | None = None
) -> jax.Array:
    """Returns an array after checking its shape.

    The arguments are those of TensorFlow's ``tf.ensure_shape``; `name` has no effect.
    """
    return shaping.ensure_shape(x, shape)


publish(
    "unisono",
    constant,
    convert_to_tensor,
    identity,
    cast,
    saturate_cast,
    zeros,
    ones,
    fill,
    zeros_like,
    ones_like,
    eye,
    range,
    linspace,
    one_hot,
    sequence_mask,
    shape,
    size,
    rank,
    stop_gradient,
    reshape,
    transpose,
    concat,
    stack,
    unstack,
    split,
    tile,
    repeat,
    squeeze,
    expand_dims,
    broadcast_to,
    pad,
    reverse,
    roll,
    reverse_sequence,
    meshgrid,
    slice,
    strided_slice,
    ensure_shape,
)
