"""Makes arrays: constants, conversions, and arrays of a given shape."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.execution import conversion
from unisono._src.foundation import dtypes, errors, wide_numbers
from unisono._src.ops import kinds, tensors
from unisono._src.ops.host import frequent_arguments
from unisono._src.ops.host.shared_bodies import array_function, everyday_name
from unisono._src.ops.tensors import DType, Sizes, TensorLike
from unisono._src.values import jax_tapes
from unisono._src.values.indexed_slices import IndexedSlices

__all__ = [
    "broadcast_dynamic_shape",
    "cast",
    "constant",
    "convert_to_tensor",
    "eye",
    "fill",
    "identity",
    "linspace",
    "one_hot",
    "ones",
    "ones_like",
    "range",
    "rank",
    "saturate_cast",
    "sequence_mask",
    "shape",
    "size",
    "stop_gradient",
    "zeros",
    "zeros_like",
]

_RANGE_TYPES = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)

_NARROW_TYPES = (
    "64-bit types become 32-bit types, with a warning, unless JAX's 64-bit types are "
    "enabled; a number that does not fit is an `OverflowError`."
)
_KNOWN_SIZES = (
    "In a compiled function the result is a NumPy array, because XLA needs known "
    "sizes; it can be used as a shape."
)


@array_function("constant", difference=_NARROW_TYPES)
def constant(
    value: TensorLike,
    dtype: DType = None,
    shape: Sizes | None = None,
    name: str | None = "Const",
) -> jax.Array:
    """Returns an array of the given numbers.

    Raises:
        TypeError: numbers do not fit the dtype or the shape.

    >>> constant([1, 2]).dtype.name, constant(1.5).dtype.name
    ('int32', 'float32')
    """
    wanted = None if dtype is None else tensors.usable_type(dtype)
    given = tensors.unwrap(value)
    if isinstance(given, jax.Array) and wanted is not None and given.dtype != wanted:
        raise TypeError(
            f"Expected tensor with dtype {wanted}, but got dtype {given.dtype}; "
            "convert it with unisono.cast."
        )
    found = tensors.own_tensor(given, wanted)
    if shape is None:
        return found
    sizes = tensors.sizes("constant", "shape", shape)
    # One number fills any shape; several must fit it.
    if found.size == 1:
        return jnp.broadcast_to(found.reshape(()), sizes)
    if found.size != math.prod(sizes):
        raise TypeError(
            f"Eager execution of unisono.constant with unsupported shape: the value "
            f"has {found.size} elements, but got shape {sizes} with "
            f"{math.prod(sizes)} elements."
        )
    return found.reshape(sizes)


@array_function("convert_to_tensor", difference=_NARROW_TYPES)
def convert_to_tensor(
    value: TensorLike,
    dtype: DType = None,
    dtype_hint: DType = None,
    name: str | None = None,
) -> jax.Array:
    """Converts a number, list, variable or array to an array.

    Raises:
        TypeError: a number does not fit `dtype`.
        ValueError: an array has a dtype other than `dtype`, or the value cannot be
            converted.
    """
    if dtype is not None:
        return tensors.own_tensor(value, tensors.usable_type(dtype))
    found = tensors.own_tensor(value)
    is_given = isinstance(tensors.unwrap(value), jax.Array)
    if dtype_hint is None or is_given or not kinds.can_hold(dtype_hint, found.dtype):
        return found
    return found.astype(tensors.canonical_type(dtype_hint))


@array_function("identity")
def identity(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns a new array with the same elements."""
    if isinstance(input, IndexedSlices):
        values, indices = identity(input.values), identity(input.indices)
        sparse: Any = IndexedSlices(values, indices, input.dense_shape)
        rows: jax.Array = sparse
        return rows
    return tensors.renew(tensors.tensor(input))


@array_function(
    "cast",
    difference=(
        "A float that is out of range for an integer type becomes the nearest limit of "
        "the type, and NaN becomes 0; in TensorFlow both are undefined."
    ),
    quick=frequent_arguments.cast_to_float,
)
@tensors.folds_constants
def cast(x: TensorLike, dtype: DType, name: str | None = None) -> jax.Array:
    """Returns an array converted to another dtype.

    >>> cast([0.5, -1.7], "int32").tolist()
    [0, -1]
    """
    wanted = tensors.usable_type(dtype)
    if isinstance(x, IndexedSlices):
        sparse: Any = IndexedSlices(cast(x.values, wanted), x.indices, x.dense_shape)
        rows: jax.Array = sparse
        return rows
    given = tensors.unwrap(x)
    if _is_wide_integer(given) and np.dtype(dtype) == wanted:
        # A type that JAX has was asked for: TensorFlow's cast, which keeps the lower
        # bits of an integer. One to 64 bits may not lose any.
        given = given.astype(wanted)
    found = tensors.tensor(given)
    if found.dtype == wanted:
        return found
    if kinds.kind(found.dtype) == "c" and kinds.kind(wanted) != "c":
        found = jnp.real(found)
    return found.astype(wanted)


@array_function("saturate_cast")
def saturate_cast(
    value: TensorLike, dtype: DType, name: str | None = None
) -> jax.Array:
    """Returns an array converted to another dtype and clipped to its limits."""
    wanted = tensors.usable_type(dtype)
    given = tensors.unwrap(value)
    if _is_wide_integer(given) and wanted == dtype and kinds.kind(wanted) == "i":
        own, limits = kinds.limits(given.dtype), kinds.limits(wanted)
        low, high = max(limits.min, own.min), min(limits.max, own.max)
        given = np.clip(given, low, high).astype(wanted)
    found = tensors.tensor(given)
    if kinds.kind(found.dtype) == "c":
        found = jnp.real(found)
    if kinds.kind(wanted) == "i" and kinds.kind(found.dtype) in "if":
        own, limits = kinds.limits(found.dtype), kinds.limits(wanted)
        # The narrower of the two ranges, or the bounds would not fit the source's type.
        low, high = max(limits.min, int(own.min)), min(limits.max, int(own.max))
        # A float may not be able to hold the limit; XLA's conversion then keeps to it.
        found = jnp.clip(found, low, high)
    elif kinds.kind(wanted) == "f" and kinds.kind(found.dtype) in "if":
        most = (int if kinds.kind(found.dtype) == "i" else float)(
            kinds.limits(wanted).max
        )
        if kinds.limits(found.dtype).max > most:
            found = jnp.clip(found, -most, most)
    return found.astype(wanted)


@array_function("zeros")
def zeros(
    shape: Sizes,
    dtype: DType = dtypes.float32,
    name: str | None = None,
    layout: object = None,
) -> jax.Array:
    """Returns an array of zeros.

    >>> zeros([2, 3]).shape
    (2, 3)
    """
    return _full("zeros", shape, 0, dtype)


@array_function("ones")
def ones(
    shape: Sizes,
    dtype: DType = dtypes.float32,
    name: str | None = None,
    layout: object = None,
) -> jax.Array:
    """Returns an array of ones."""
    return _full("ones", shape, 1, dtype)


@array_function("fill")
def fill(
    dims: Sizes, value: TensorLike, name: str | None = None, layout: object = None
) -> jax.Array:
    """Returns an array that is filled with one value."""
    found = tensors.tensor(value)
    if found.ndim:
        raise errors.InvalidArgumentError(
            f"Input value must be a scalar. Got shape: {list(found.shape)} in fill."
        )
    return _full("fill", dims, found, found.dtype)


@array_function("zeros_like")
def zeros_like(
    input: TensorLike,
    dtype: DType = None,
    name: str | None = None,
    layout: object = None,
) -> jax.Array:
    """Returns an array of zeros with the shape and dtype of another one."""
    return _full_like(input, 0, dtype)


@array_function("ones_like")
def ones_like(
    input: TensorLike,
    dtype: DType = None,
    name: str | None = None,
    layout: object = None,
) -> jax.Array:
    """Returns an array of ones with the shape and dtype of another one."""
    return _full_like(input, 1, dtype)


@array_function("eye", "linalg.eye")
def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Sizes | None = None,
    dtype: DType = dtypes.float32,
    name: str | None = None,
) -> jax.Array:
    """Returns an identity matrix, or a batch of them."""
    height = tensors.require_known("eye", "num_rows", num_rows)
    given = num_rows if num_columns is None else num_columns
    width = tensors.require_known("eye", "num_columns", given)
    if height < 0 or width < 0:
        raise errors.InvalidArgumentError(
            f"Arguments `num_rows` and `num_columns` must be positive integer values. "
            f"Received: num_rows={height}, num_columns={width}."
        )
    made = jnp.eye(height, width, dtype=tensors.usable_type(dtype))
    if batch_shape is None:
        return made
    batch = tensors.sizes("eye", "batch_shape", batch_shape)
    return jnp.broadcast_to(made, (*batch, height, width))


@array_function("range")
def range(
    start: TensorLike,
    limit: TensorLike | None = None,
    delta: TensorLike = 1,
    dtype: DType = None,
    name: str | None = "range",
) -> jax.Array:
    """Returns the numbers from `start` to `limit` (exclusive), in steps of `delta`.

    Raises:
        InvalidArgumentError: `delta` is 0, or has the wrong sign.
        TypeError: the value of an argument is not known when a function is compiled.

    >>> range(3).tolist(), range(1, 2, 0.5).tolist()
    ([0, 1, 2], [1.0, 1.5])
    """
    conversion.check_loop()
    return jnp.asarray(range_on_host(start, limit, delta, dtype))


def range_on_host(
    start: TensorLike,
    limit: TensorLike | None = None,
    delta: TensorLike = 1,
    dtype: DType = None,
) -> np.ndarray:
    """Returns the numbers of `range` as an array of NumPy's."""
    if limit is None:
        start, limit = 0, start
    given = [_known_number(x) for x in (start, limit, delta)]
    if dtype is None:
        # TensorFlow widens among these four types; any other one decides alone.
        found = [x.dtype for x in given if x.dtype not in _RANGE_TYPES]
        wider = max(
            (x.dtype for x in given if x.dtype in _RANGE_TYPES),
            key=_RANGE_TYPES.index,
            default=dtypes.int32,
        )
        wanted = found[0] if found else wider
    else:
        wanted = tensors.usable_type(dtype)
    first, last, step = (x.astype(wanted).item() for x in given)
    if step == 0:
        raise errors.InvalidArgumentError("Requires delta != 0 in range.")
    if (last - first) * step < 0:
        sign = "<=" if step > 0 else ">="
        raise errors.InvalidArgumentError(
            f"Requires start {sign} limit when delta {'>' if step > 0 else '<'} 0: "
            f"received {first} and {last} in range."
        )
    # On the host, in double precision, as TensorFlow counts the elements.
    size = math.ceil((last - first) / step)
    numbers: np.ndarray = (first + np.arange(size) * step).astype(wanted)
    return numbers


@array_function(
    "linspace",
    difference=(
        "If both ends are integers, the result is float32 unless JAX's 64-bit types "
        "are enabled."
    ),
)
def linspace(
    start: TensorLike,
    stop: TensorLike,
    num: int,
    name: str | None = None,
    axis: int = 0,
) -> jax.Array:
    """Returns evenly spaced numbers, including both ends.

    Raises:
        InvalidArgumentError: `num` is not positive.
    """
    first, last = tensors.to_one_type("linspace", start, stop)
    if kinds.kind(first.dtype) == "i":
        wide = tensors.canonical_type(dtypes.float64)
        first, last = first.astype(wide), last.astype(wide)
    kinds.check("linspace", first.dtype, kinds.FLOAT)
    size = tensors.require_known("linspace", "num", num)
    made: Any = tensors.call("linspace", jnp.linspace, first, last, size, axis=axis)
    return jnp.asarray(made)


@array_function("one_hot", quick=frequent_arguments.one_hot_number)
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

    Raises:
        TypeError: `on_value` or `off_value` has a dtype other than `dtype`.

    >>> one_hot([1], 3).tolist()
    [[0.0, 1.0, 0.0]]
    """
    found = tensors.tensor(indices)
    kinds.check("one_hot", found.dtype, kinds.INTEGER)
    values = [x for x in (on_value, off_value) if x is not None]
    if dtype is not None:
        wanted = tensors.usable_type(dtype)
    elif values:
        wanted = tensors.to_one_type("one_hot", *values)[0].dtype
    else:
        wanted = dtypes.float32
    size = tensors.require_known("one_hot", "depth", depth)
    if size < 0:
        raise errors.InvalidArgumentError(f"depth must be non-negative, got: {size}.")
    place = -1 if axis is None else tensors.require_known("one_hot", "axis", axis)
    if not -1 <= place <= found.ndim:
        raise errors.InvalidArgumentError(
            f"Expected axis to be -1 or between [0, {found.ndim + 1}). But received: "
            f"{place} in one_hot."
        )
    is_on = jax.nn.one_hot(found, size, dtype=bool, axis=place)
    if not values:
        return is_on.astype(wanted)
    ends = [
        tensors.to_numpy(default, wanted) if x is None else _one_hot_value(x, wanted)
        for x, default in ((on_value, True), (off_value, False))
    ]
    return jnp.where(is_on, ends[0], ends[1])


@array_function("sequence_mask", difference="In a compiled function it needs `maxlen`.")
def sequence_mask(
    lengths: TensorLike,
    maxlen: int | None = None,
    dtype: DType = dtypes.bool,
    name: str | None = None,
) -> jax.Array:
    """Returns a mask whose rows begin with the given numbers of true elements."""
    found = tensors.tensor(lengths)
    kinds.check("sequence_mask", found.dtype, kinds.REAL)
    if maxlen is None:
        if jax_tapes.is_traced(found):
            raise TypeError(
                "sequence_mask needs maxlen in a compiled function: the size of its "
                "result must be known when the program is compiled."
            )
        maxlen = math.ceil(np.asarray(found).max(initial=0))
    size = tensors.require_known("sequence_mask", "maxlen", maxlen)
    mask = jnp.arange(size) < found[..., None]
    return mask.astype(tensors.usable_type(dtype))


@array_function("shape", difference=_KNOWN_SIZES)
def shape(
    input: TensorLike, out_type: DType = None, name: str | None = None
) -> jax.Array:
    """Returns the shape of an array, as an array."""
    wanted = tensors.canonical_type(dtypes.int32 if out_type is None else out_type)
    sizes = input.shape if isinstance(input, IndexedSlices) else tensors.shape_of(input)
    return _numbers(sizes, wanted)


@everyday_name("broadcast_dynamic_shape", difference=_KNOWN_SIZES)
def broadcast_dynamic_shape(shape_x: Sizes, shape_y: Sizes) -> jax.Array:
    """Returns the shape to which two shapes are broadcast, as an array.

    >>> broadcast_dynamic_shape([2, 1, 3], [5, 1]).tolist()
    [2, 5, 3]
    """
    name = "broadcast_dynamic_shape"
    x = tensors.sizes(name, "shape_x", shape_x)
    y = tensors.sizes(name, "shape_y", shape_y)
    try:
        found = np.broadcast_shapes(x, y)
    except ValueError:
        raise errors.InvalidArgumentError(
            f"Incompatible shapes: {list(x)} vs. {list(y)} in {name}."
        ) from None
    return _numbers(found, np.dtype(dtypes.int32))


@array_function("size", difference=_KNOWN_SIZES)
def size(
    input: TensorLike, out_type: DType = None, name: str | None = None
) -> jax.Array:
    """Returns the number of elements of an array."""
    wanted = tensors.canonical_type(dtypes.int32 if out_type is None else out_type)
    return _numbers(math.prod(tensors.shape_of(input)), wanted)


@array_function("rank", difference=_KNOWN_SIZES)
def rank(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the number of axes of an array."""
    return _numbers(len(tensors.shape_of(input)), dtypes.int32)


@array_function("stop_gradient")
def stop_gradient(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the same elements, which gradients treat as constants."""
    # A new array: a tape follows the old one by its identity.
    return jax.lax.stop_gradient(jnp.array(tensors.tensor(input), copy=True))


def _is_wide_integer(x: object) -> TypeGuard[np.ndarray]:
    """Returns whether a value is NumPy's, of integers that JAX may have no type for."""
    if not isinstance(x, (np.ndarray, np.generic)):
        return False
    return x.dtype.kind in "iu" and x.dtype in wide_numbers.WIDE


def _full(name: str, shape: Sizes, value: ArrayLike, dtype: DType) -> jax.Array:
    """Returns an array with one value everywhere.

    Raises:
        InvalidArgumentError: a size is negative.
    """
    sizes = tensors.sizes(name, "shape", shape)
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise errors.InvalidArgumentError(
            f"Dimensions must be >= 0 in {name}, received {sizes}."
        )
    return jnp.full(sizes, value, tensors.usable_type(dtype))


def _full_like(x: TensorLike, value: int, dtype: DType) -> jax.Array:
    """Returns an array of the shape of another, with one value everywhere."""
    found = tensors.tensor(x)
    wanted = found.dtype if dtype is None else tensors.usable_type(dtype)
    return jnp.full(found.shape, value, wanted)


def _known_number(x: TensorLike) -> np.ndarray:
    """Returns a scalar that must be known when a program is compiled."""
    given = tensors.unwrap(x)
    if jax_tapes.is_traced(given):
        raise TypeError(
            "start, limit and delta of range must be known when the program is "
            "compiled; received an array that the program computes. Sizes that "
            "unisono.shape(x) gives, x.shape and Python's numbers are known."
        )
    found = (
        np.asarray(given) if isinstance(given, jax.Array) else tensors.to_numpy(given)
    )
    if found.ndim:
        raise errors.InvalidArgumentError(
            f"start, limit and delta of range are scalars, received {given!r}."
        )
    return found


def _one_hot_value(x: TensorLike, wanted: np.dtype) -> jax.Array:
    """Returns one of the values of `one_hot`, of the type that the other has."""
    given = tensors.unwrap(x)
    if isinstance(given, jax.Array) and given.dtype != wanted:
        raise TypeError(
            f"dtypes of on_value, off_value and dtype must match in one_hot, received "
            f"{given.dtype} and {np.dtype(wanted)}."
        )
    return tensors.tensor(given, wanted)


def _numbers(values: int | tuple[int, ...], dtype: np.dtype) -> jax.Array:
    """Returns sizes, in a form that can be a shape also while a program is made.

    A size that an exported program leaves open is an object, and stays one.
    """
    found: Any = np.asarray(values)
    if found.dtype != object:
        found = found.astype(dtype)
        made = jnp.asarray(found)
        found = tensors.known_numbers(found) if jax_tapes.is_traced(made) else made
    numbers: jax.Array = found
    return numbers
