"""Bilinear resizing of photos on the host by a program of XLA.

It takes half of the time that NumPy takes, and gives the same numbers to the last bit;
but those that are too small for float32's usual range are 0, as in TensorFlow. One
program resizes photos of all sizes to one size: photos of a folder differ in theirs.
"""

from __future__ import annotations

import functools
import math
from typing import final

import jax
import numpy as np
from jax import lax

from unisono._src.input.plan import host_buffers
from unisono._src.ops.host import host_programs
from unisono._src.ops.images import image_functions, sampling
from unisono._src.ops.images.sampling import Taps

# To compile a program takes as long as NumPy takes longer than it for 200 photos. Most
# functions resize all photos to one size, so the first program is compiled for the
# fifth; each further one for so many later, since some draw a new size for each photo.
FIRST, MORE, MOST = 4, 32, 200
# Results of fewer numbers cost NumPy less than the call of a program.
_SMALL = 1 << 14
_U, _F = np.uint32, np.float32
# Takes the numbers of one pixel after the other.
_GATHER = lax.GatherDimensionNumbers(
    offset_dims=(2,), collapsed_slice_dims=(), start_index_map=(0,)
)


def _resize(
    channels: int,
    numbers: jax.Array,
    scalars: jax.Array,
    y: jax.Array,
    x: jax.Array,
) -> jax.Array:
    """Returns what is between two columns, and then between two rows.

    Args:
        channels: how many numbers a pixel has.
        numbers: the image, and what is left of the memory for it.
        scalars: how many numbers a row has, and a zero, which the compiler must not
            know.
        y: which rows are above and below each row of the result, and the bits of the
            weight of the one below.
        x: the same for columns.
    """
    pixels = (y.shape[1], x.shape[1])
    shape = (*pixels, channels)

    def spread(
        table: jax.Array, index: int, axis: int, shape: tuple[int, ...]
    ) -> jax.Array:
        """Returns a row of a table along an axis of a shape."""
        size = table.shape[1]
        row = lax.slice(table, (index, 0), (index + 1, size))
        return lax.broadcast_in_dim(lax.reshape(row, (size,)), shape, (axis,))

    length, zero = spread(scalars, 0, 1, pixels), spread(scalars, 1, 1, shape)
    above, below = (spread(y, i, 0, pixels) for i in range(2))
    left, right = (spread(x, i, 1, pixels) for i in range(2))
    lower, righter = (
        lax.bitcast_convert_type(spread(table, 2, axis, shape), _F)
        for axis, table in enumerate((y, x))
    )

    def take(row: jax.Array, column: jax.Array) -> jax.Array:
        first = lax.mul(lax.add(lax.mul(row, length), column), _U(channels))
        index = lax.reshape(first, (*pixels, 1))
        mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
        found = lax.gather(numbers, index, _GATHER, (channels,), mode=mode)
        return lax.convert_element_type(found, _F)

    def mix(low: jax.Array, high: jax.Array, weight: jax.Array) -> jax.Array:
        # The processor may add a product before it is rounded, which gives other
        # numbers than TensorFlow's. Not a product whose bits have changed.
        product = lax.mul(lax.sub(high, low), weight)
        bits = lax.bitwise_xor(lax.bitcast_convert_type(product, _U), zero)
        return lax.add(low, lax.bitcast_convert_type(bits, _F))

    low, high = (mix(take(r, left), take(r, right), righter) for r in (above, below))
    return mix(low, high, lower)


@functools.lru_cache
def find_program(
    height: int, width: int, channels: int, capacity: int, dtype: np.dtype
) -> host_programs.Program:
    """Returns the program for all images that fit.

    Args:
        height: how many rows the result has.
        width: how many columns the result has.
        channels: how many numbers a pixel has.
        capacity: how many numbers an image may have.
        dtype: their type.
    """
    del height, width, capacity, dtype  # The program is compiled for the first image's.
    known = find_program.cache_info().currsize
    worth = min(FIRST + MORE * known, MOST)
    return host_programs.Program(functools.partial(_resize, channels), worth)


@functools.lru_cache(sampling.MOST_SIZES)
def _read_rows(y: Taps, given: int) -> tuple[np.ndarray | None, np.ndarray]:
    """Returns which rows are needed, None if it is most of them, and a table of them.

    Args:
        y: which rows the rows of the result are made of.
        given: how many rows the image has.
    """
    needed, places = np.unique(y.indices, return_inverse=True)
    # A much smaller image does not need all rows.
    if len(needed) <= given // 2:
        return needed, _make_table(places.reshape(y.indices.shape), y.weights)
    return None, _make_table(y.indices, y.weights)


def _make_table(indices: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.concatenate([indices.astype(_U), weights.view(_U)])


_make_column_table = functools.lru_cache(sampling.MOST_SIZES)(
    lambda x: _make_table(x.indices, x.weights)
)


@final
class Resizer:
    """Resizes images of one size to another one.

    Args:
        y: which rows the rows of the result are made of.
        x: which pixels of a row the pixels of the result are made of.
        shape: the height, width and channels of the images.
        dtype: their type: uint8 or float32.
    """

    def __init__(
        self, y: Taps, x: Taps, shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        rows, columns, channels = shape
        self._needed, y_table = _read_rows(y, rows)
        x_table = _make_column_table(x)
        self._tables = np.array([[columns], [0]], _U), y_table, x_table
        count = rows if self._needed is None else len(self._needed)
        self._given = (count, columns, channels)
        self._bytes = host_buffers.find_room(math.prod(self._given) * dtype.itemsize)
        capacity = self._bytes // dtype.itemsize
        self._numbers = jax.ShapeDtypeStruct((capacity,), dtype)
        made = (y_table.shape[1], x_table.shape[1], channels)
        self._is_small = math.prod(made) < _SMALL
        self._program = find_program(*made, capacity, dtype)

    def run(self, images: np.ndarray) -> np.ndarray | None:
        """Returns resized images; None if NumPy shall resize them.

        Args:
            images: [images, height, width, channels].
        """
        if self._is_small or not self._program.prepare(
            len(images), self._numbers, *self._tables
        ):
            return None
        made = []
        for image in images:
            one = self.run_one(image)
            if one is None:
                return None
            made.append(one)
        return np.stack(made) if len(made) > 1 else made[0][None]

    def run_one(self, image: np.ndarray) -> np.ndarray | None:
        """Returns a resized image if the program is ready; None otherwise.

        Args:
            image: [height, width, channels].
        """
        if self._program.compiled is None:
            return None
        memory = host_buffers.find_memory(image) if self._needed is None else None
        if memory is None or len(memory) < self._bytes:
            copy = image_functions.buffers.allocate(
                self._given, image.dtype, has_room=True
            )
            if self._needed is None:
                copy[:] = image
            else:
                np.take(image, self._needed, 0, out=copy, mode="wrap")
            memory = host_buffers.find_memory(copy)
            assert memory is not None
        numbers = memory[: self._bytes].view(image.dtype)
        return self._program.run(numbers, *self._tables)
