"""Partitioners: into how many parts a variable is cut over parameter servers."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation import jax_types
from unisono._src.foundation.public_names import publish


class Partitioner(abc.ABC):
    """Says into how many parts a variable is cut; abstract.

    `ParameterServerStrategy` calls it for each variable of one axis or more. A function
    of the same arguments does as well.

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
            axis: the axis to cut; the others have one part.
        """


class FixedShardsPartitioner(Partitioner):
    """Cuts every variable into the same number of parts.

    Args:
        num_shards: the number; fewer if the axis is shorter.

    Raises:
        ValueError: the number is less than 1.

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
    """Cuts a variable into as many parts as possible, each of at least a given size.

    Args:
        min_shard_bytes: the least size of a part.
        max_shards: the greatest number of parts.
        bytes_per_string: for TensorFlow's signature: variables hold no text here.

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
    """Cuts a variable into as few parts as possible, each of at most a given size.

    Args:
        max_shard_bytes: the greatest size of a part.
        max_shards: the greatest number of parts, which goes before their size; None for
            any.
        bytes_per_string: for TensorFlow's signature: variables hold no text here.

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
        self._max_shards = max_shards and _check_positive("max_shards", max_shards)
        if max_shards is not None:
            _check_positive("max_shards", max_shards)
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


def _check_positive(name: str, value: Any) -> int:
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
    partitioner: Any, shape: Sequence[int], dtype: DTypeLike, name: str
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


publish(
    "unisono.distribute.experimental.partitioners",
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
    Partitioner,
)
