"""Partitioners: into how many parts a variable is cut, and variables in parts."""

from __future__ import annotations

import abc
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from unisono._src.foundation import jax_types
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.state.variables import Variable
from unisono._src.values.array_operators import operand

_log = logging.getLogger("unisono")
# A first value of more elements is made whole only with a warning, as in TensorFlow.
_LARGE = 1e9


# A partitioner, or any function of a shape and a type.
PartitionFunction = Callable[..., Sequence[int]]


class Partitioner(abc.ABC):
    """Determines into how many parts a variable is split; abstract.

    `ParameterServerStrategy` calls it for each variable with at least one axis. You can
    also use a function with the same arguments.

    >>> class Halves(Partitioner):
    ...     def __call__(self, shape, dtype, axis=0):
    ...         return [2] + [1] * (len(shape) - 1)
    >>> Halves()((6, 1), "float32")
    [2, 1]
    """

    @abc.abstractmethod
    def __call__(
        self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0
    ) -> list[int]:
        """Returns the number of parts along each axis.

        Args:
            shape: the shape of the variable.
            dtype: its element type.
            axis: the axis to split; the other axes have one part.
        """


class FixedShardsPartitioner(Partitioner):
    """Splits every variable into the same number of parts.

    Args:
        num_shards: the number of parts; there are fewer if the axis is shorter.

    Raises:
        ValueError: `num_shards` is less than 1.

    >>> FixedShardsPartitioner(2)((6, 1), "float32")
    [2, 1]
    """

    def __init__(self, num_shards: int) -> None:
        self._num_shards = _check_positive("num_shards", num_shards)

    def __call__(
        self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0
    ) -> list[int]:
        """Returns the number of parts along each axis; see `Partitioner`."""
        return _parts_along(axis, shape, min(self._num_shards, shape[axis]))


class MinSizePartitioner(Partitioner):
    """Splits a variable into as many parts as possible, each of a minimum size.

    Args:
        min_shard_bytes: the minimum size of a part.
        max_shards: the maximum number of parts.
        bytes_per_string: accepted, no effect; variables do not contain text here.

    Raises:
        ValueError: an argument is less than 1.

    >>> MinSizePartitioner(4, max_shards=2)((6, 1), "float32")
    [2, 1]
    >>> MinSizePartitioner(4, max_shards=10)((6, 1), "float32")
    [6, 1]
    """

    def __init__(
        self,
        min_shard_bytes: int = 256 << 10,
        max_shards: int = 1,
        bytes_per_string: int = 16,
    ) -> None:
        self._min_shard_bytes = _check_positive("min_shard_bytes", min_shard_bytes)
        self._max_shards = _check_positive("max_shards", max_shards)
        _check_positive("bytes_per_string", bytes_per_string)

    def __call__(
        self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0
    ) -> list[int]:
        """Returns the number of parts along each axis; see `Partitioner`."""
        row = _row_bytes(shape, dtype, axis)
        # As many rows as a part needs at least.
        rows = max(1, math.ceil(self._min_shard_bytes / row))
        found = min(self._max_shards, max(1, shape[axis] // rows))
        return _parts_along(axis, shape, found)


class MaxSizePartitioner(Partitioner):
    """Splits a variable into as few parts as possible, each of a maximum size.

    Args:
        max_shard_bytes: the maximum size of a part.
        max_shards: the maximum number of parts, which takes precedence over their size;
            None for no maximum.
        bytes_per_string: accepted, no effect; variables do not contain text here.

    Raises:
        ValueError: an argument is less than 1.

    >>> MaxSizePartitioner(4)((6, 1), "float32")
    [6, 1]
    >>> MaxSizePartitioner(4, max_shards=2)((6, 1), "float32")
    [2, 1]
    >>> MaxSizePartitioner(1024)((6, 1), "float32")
    [1, 1]
    """

    def __init__(
        self,
        max_shard_bytes: int,
        max_shards: int | None = None,
        bytes_per_string: int = 16,
    ) -> None:
        self._max_shard_bytes = _check_positive("max_shard_bytes", max_shard_bytes)
        if max_shards is not None:
            _check_positive("max_shards", max_shards)
        self._max_shards = max_shards
        _check_positive("bytes_per_string", bytes_per_string)

    def __call__(
        self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0
    ) -> list[int]:
        """Returns the number of parts along each axis; see `Partitioner`."""
        row = _row_bytes(shape, dtype, axis)
        rows = max(1, self._max_shard_bytes // row)
        found = min(shape[axis], math.ceil(shape[axis] / rows))
        if self._max_shards is not None:
            found = min(found, self._max_shards)
        return _parts_along(axis, shape, max(1, found))


def _check_positive(name: str, value: int) -> int:
    """Returns an argument, which must be a positive number."""
    if value < 1:
        raise ValueError(f"Argument `{name}` must be positive. Received: {value}.")
    return int(value)


def _row_bytes(shape: Sequence[int], dtype: DTypeLike, axis: int) -> int:
    """Returns the number of bytes of one slice along an axis."""
    others = [side for i, side in enumerate(shape) if i != axis % len(shape)]
    size: int = np.dtype(jax_types.usable_type(dtype)).itemsize
    return max(1, int(np.prod(others)) * size)


def _parts_along(axis: int, shape: Sequence[int], count: int) -> list[int]:
    made = [1] * len(shape)
    made[axis] = count
    return made


def count_parts(
    partitioner: PartitionFunction, shape: Sequence[int], dtype: DTypeLike, name: str
) -> int:
    """Returns into how many parts a partitioner cuts a variable along its first axis.

    Raises:
        ValueError: the partitioner returns something else than parts along one axis.
    """
    if not shape:
        return 1
    # By keyword, as TensorFlow calls it: a program may give any function.
    found = list(partitioner(shape=tuple(shape), dtype=dtype))
    is_valid = len(found) == len(shape) and all(n == 1 for n in found[1:])
    if not is_valid or found[0] < 1:
        raise ValueError(
            "variable_partitioner must return a list with a number of parts for each "
            "axis, all of which except the first are 1, and none less than 1; "
            f"for the variable '{name}' of shape {tuple(shape)} it returned {found}."
        )
    return min(int(found[0]), shape[0]) or 1


def lengths(rows: int, parts: int) -> list[int]:
    """Returns how many rows each part has; the first ones have one more."""
    base, more = divmod(rows, parts)
    return [base + (i < more) for i in range(parts)]


# Variables in parts.


def create(
    partitioner: PartitionFunction,
    create_part: Callable[..., Variable],
    arguments: dict[str, Any],
) -> Variable | ShardedVariable:
    """Returns a variable; one in parts if the partitioner cuts it.

    Args:
        partitioner: says into how many parts.
        create_part: makes a variable from keyword arguments.
        arguments: those of `Variable`.

    Raises:
        ValueError: there is no first value, or the partitioner returns something else
            than parts along one axis.
    """
    given, name = arguments["initial_value"], arguments["name"] or "Variable"
    if given is None:
        raise ValueError(
            "It looks like you are using `ParameterServerStrategy` with a "
            "`variable_partitioner`, and trying to create a variable without "
            "specifying `initial_value`. This is not allowed. Please specify the "
            "`initial_value`."
        )
    shape, dtype = TensorShape(arguments["shape"]), arguments["dtype"]
    whole = None
    if not callable(given) or not shape.is_fully_defined() or dtype is None:
        # The partitioner needs shape and type. If they were not given, the value has
        # them.
        whole = operand(given() if callable(given) else given)
        whole = whole if hasattr(whole, "dtype") else jnp.asarray(whole)
        shape, dtype = TensorShape(whole.shape), dtype or whole.dtype
    sizes = cast("tuple[int, ...]", tuple(shape))
    count = count_parts(partitioner, sizes, dtype, name)
    if count == 1:
        first = given if whole is None else whole
        return create_part(**{**arguments, "initial_value": first})
    parts = _first_values(given, whole, sizes, dtype, count, name)
    made = [
        create_part(
            **{
                **arguments,
                "initial_value": value,
                "shape": None,
                "name": f"{name}/part_{i}",
            }
        )
        for i, value in enumerate(parts)
    ]
    return ShardedVariable(made, name)


def _first_values(
    given: Callable[..., ArrayLike],
    whole: jax.Array | None,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    count: int,
    name: str,
) -> Iterator[jax.Array]:
    """Yields the first value of each part."""
    offset = 0
    for length in lengths(shape[0], count):
        part = (length, *shape[1:])
        if whole is None:
            found = _call_for_part(given, part, (offset, *[0] * len(shape[1:])))
            if found is None or tuple(np.shape(found)) != part:
                # The function knows nothing of parts: it makes the whole value, once.
                whole = _call_for_whole(given, shape, name)
            else:
                yield jnp.asarray(found, jax_types.usable_type(dtype))
        if whole is not None:
            yield whole[offset : offset + length]
        offset += length


def _call_for_part(
    given: Callable[..., ArrayLike], shape: tuple[int, ...], offset: tuple[int, ...]
) -> ArrayLike | None:
    """Returns the part that a function makes; None if it makes no parts."""
    try:
        # TensorFlow's keywords. A function that does not take them raises `TypeError`.
        found: ArrayLike
        found = operand(given(partition_shape=shape, partition_offset=offset))
        return found
    except (TypeError, ValueError):
        return None


def _call_for_whole(
    given: Callable[..., ArrayLike], shape: tuple[int, ...], name: str
) -> jax.Array:
    if np.prod(shape) > _LARGE:
        _log.warning(
            "The first value of the variable '%s' of shape %s is made whole, and then "
            "cut. Let the function take `partition_shape` and `partition_offset`.",
            name,
            shape,
        )
    return jnp.asarray(operand(given()))
