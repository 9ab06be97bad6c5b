"""Makes arrays: constants, conversions, and arrays of a given shape."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors, wide_numbers
from unisono._src.ops import kinds, tensors
from unisono._src.values import jax_tapes
from unisono._src.values.indexed_slices import IndexedSlices


def constant(value: Any, dtype: Any, shape: Any) -> jax.Array:
    """Returns an array of given numbers.

    Raises:
        TypeError: numbers do not fit the type or the shape.
    """
    wanted = None if dtype is None else tensors.usable_type(dtype)
    given = tensors.unwrap(value)
    if isinstance(given, jax.Array) and wanted is not None and given.dtype != wanted:
        raise TypeError(
            f"Expected tensor with dtype {wanted}, but got dtype {given.dtype}; "
            "convert it with unisono.cast."
        )
    found = tensors.tensor(given, wanted)
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


def convert(value: Any, dtype: Any, hint: Any) -> jax.Array:
    """Returns the array of a value.

    Raises:
        TypeError: a number does not fit `dtype`.
        ValueError: an array is of another type, or the value is no array.
    """
    if dtype is not None:
        return tensors.tensor(value, tensors.usable_type(dtype))
    found = tensors.tensor(value)
    is_given = isinstance(tensors.unwrap(value), jax.Array)
    if hint is None or is_given or not kinds.can_hold(hint, found.dtype):
        return found
    return found.astype(tensors.canonical_type(hint))


def identity(x: Any) -> jax.Array:
    """Returns a new array of the same elements; a gradient passes through it."""
    if isinstance(x, IndexedSlices):
        values, indices = identity(x.values), identity(x.indices)
        sparse: Any = IndexedSlices(values, indices, x.dense_shape)
        rows: jax.Array = sparse
        return rows
    # A new object: tapes follow arrays by their identity.
    return jnp.array(tensors.tensor(x), copy=True)


def stop_gradient(x: Any) -> jax.Array:
    """Returns the same elements, which count as constants."""
    # A new array: a tape follows the old one by its identity.
    return jax.lax.stop_gradient(jnp.array(tensors.tensor(x), copy=True))


def cast(x: Any, dtype: Any) -> jax.Array:
    """Returns the elements in another type; floats are cut off to integers."""
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


def _is_wide_integer(x: Any) -> bool:
    """Returns whether a value is NumPy's, of integers that JAX may have no type for."""
    is_host = isinstance(x, (np.ndarray, np.generic))
    return is_host and x.dtype.kind in "iu" and x.dtype in wide_numbers.WIDE


def saturate_cast(value: Any, dtype: Any) -> jax.Array:
    """Returns the elements in another type; those out of range become its limit."""
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
    return found.astype(wanted)


def full(name: str, shape: Any, value: Any, dtype: Any) -> jax.Array:
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


def fill(dims: Any, value: Any) -> jax.Array:
    """Returns an array with one value everywhere, of the type of the value."""
    found = tensors.tensor(value)
    if found.ndim:
        raise errors.InvalidArgumentError(
            f"Input value must be a scalar. Got shape: {list(found.shape)} in fill."
        )
    return full("fill", dims, found, found.dtype)


def full_like(x: Any, value: int, dtype: Any) -> jax.Array:
    """Returns an array of the shape of another, with one value everywhere."""
    found = tensors.tensor(x)
    wanted = found.dtype if dtype is None else tensors.usable_type(dtype)
    return jnp.full(found.shape, value, wanted)


def eye(rows: Any, columns: Any, batch_shape: Any, dtype: Any) -> jax.Array:
    """Returns an identity matrix for each position of a batch."""
    height = tensors.require_known("eye", "num_rows", rows)
    given = rows if columns is None else columns
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


_RANGE_TYPES = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


def count(start: Any, limit: Any, delta: Any, dtype: Any) -> jax.Array:
    """Returns numbers from `start`, or 0, to before `limit`, `delta` apart.

    Raises:
        InvalidArgumentError: `delta` is 0, or points away from `limit`.
        TypeError: an argument is not known when the program is compiled.
    """
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
    return jnp.asarray((first + np.arange(size) * step).astype(wanted))


def _known_number(x: Any) -> np.ndarray:
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


def linspace(start: Any, stop: Any, num: Any, axis: Any) -> jax.Array:
    """Returns evenly spaced numbers from `start` to `stop`, both included.

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


def one_hot(
    indices: Any, depth: Any, on: Any, off: Any, axis: Any, dtype: Any
) -> jax.Array:
    """Returns arrays that have one value at the given positions and another elsewhere.

    Raises:
        TypeError: the values are of other types than `dtype`.
    """
    found = tensors.tensor(indices)
    kinds.check("one_hot", found.dtype, kinds.INTEGER)
    wanted = None if dtype is None else tensors.usable_type(dtype)
    values = [x for x in (on, off) if x is not None]
    if wanted is None:
        wanted = (
            tensors.to_one_type("one_hot", *values)[0].dtype if values else "float32"
        )
    ends = [
        tensors.to_numpy(default, wanted) if x is None else _one_hot_value(x, wanted)
        for x, default in ((on, True), (off, False))
    ]
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
    return jnp.where(is_on, ends[0], ends[1])


def _one_hot_value(x: Any, wanted: Any) -> Any:
    """Returns one of the values of `one_hot`, of the type that the other has."""
    given = tensors.unwrap(x)
    if isinstance(given, jax.Array) and given.dtype != wanted:
        raise TypeError(
            f"dtypes of on_value, off_value and dtype must match in one_hot, received "
            f"{given.dtype} and {np.dtype(wanted)}."
        )
    return tensors.tensor(given, wanted)


def sequence_mask(lengths: Any, maxlen: Any, dtype: Any) -> jax.Array:
    """Returns a row for each length: that many true elements, then false ones."""
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


def shape(x: Any, dtype: Any) -> jax.Array:
    """Returns the sizes of the axes; while a program is made, as NumPy's numbers."""
    wanted = tensors.canonical_type(dtypes.int32 if dtype is None else dtype)
    sizes = x.shape if isinstance(x, IndexedSlices) else tensors.shape_of(x)
    return _numbers(sizes, wanted)


def size(x: Any, dtype: Any) -> jax.Array:
    """Returns the number of elements."""
    wanted = tensors.canonical_type(dtypes.int32 if dtype is None else dtype)
    return _numbers(math.prod(tensors.shape_of(x)), wanted)


def rank(x: Any) -> jax.Array:
    """Returns the number of axes."""
    return _numbers(len(tensors.shape_of(x)), dtypes.int32)


def _numbers(values: Any, dtype: Any) -> jax.Array:
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
