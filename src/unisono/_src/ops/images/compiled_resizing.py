"""Bilinear resizing of photos on the host by a program of XLA.

NumPy reads and writes the whole image at each step of the arithmetic, and threads wait
for each other between the steps. The program takes less than half of that time, and
gives the same numbers to the last bit. To compile it takes as long as NumPy takes for
some hundred photos, so it is for sizes that come again and again.
"""

from __future__ import annotations

import functools
import threading
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.ops.host import host_device
from unisono._src.ops.images.sampling import Taps
from unisono._src.values import jax_traces

# A program is compiled for a size that has come so many times: NumPy has taken as much
# longer for those as compiling takes.
WORTH = 256
# Images of fewer numbers cost NumPy less than the call of a program.
SMALL = 1 << 15


@jax.jit
def _resize(
    image: jax.Array,
    rows: jax.Array,
    columns: jax.Array,
    row_weights: jax.Array,
    column_weights: jax.Array,
    zero: jax.Array,
) -> jax.Array:
    """Returns what is between two columns, and then between two rows."""

    def take(x: jax.Array, key: object) -> jax.Array:
        found: jax.Array = x.at[key].get(mode="promise_in_bounds")
        return found.astype(jnp.float32)

    def mix(low: jax.Array, high: jax.Array, weight: jax.Array) -> jax.Array:
        # The processor may add a product before it is rounded, which gives other
        # numbers than TensorFlow's. Not a product whose bits have changed; what `zero`
        # is, the compiler does not know.
        bits = jax.lax.bitcast_convert_type((high - low) * weight, jnp.uint32)
        return low + jax.lax.bitcast_convert_type(bits ^ zero, jnp.float32)

    low, high = (take(image, (slice(None), index)) for index in columns)
    mixed = mix(low, high, column_weights[:, None])
    low, high = (take(mixed, index) for index in rows)
    return mix(low, high, row_weights[:, None, None])


@final
class _Result:
    """The memory of an array of JAX's for one of NumPy's, which may be changed.

    Args:
        array: the array, which no one else may have.
    """

    def __init__(self, array: jax.Array) -> None:
        # JAX lets NumPy read it only.
        self._view = np.asarray(array)
        told = self._view.__array_interface__
        self.__array_interface__ = {**told, "data": (told["data"][0], False)}


@final
class Resizing:
    """Resizes images of one size, once there have been enough of them.

    Args:
        y: which rows the rows of the result are made of.
        x: which pixels of a row the pixels of the result are made of.
        channels: how many numbers a pixel has.
    """

    def __init__(self, y: Taps, x: Taps, channels: int) -> None:
        self._taps = y, x
        self._channels = channels
        self._uses = 0
        self._tables: list[jax.Array] = []
        self._compiling = threading.Lock()

    def run(self, images: np.ndarray) -> np.ndarray | None:
        """Returns resized images; None if NumPy shall do it.

        Args:
            images: [images, height, width, channels].
        """
        self._uses += len(images)
        if self._uses <= WORTH or images.dtype != np.uint8 or images[:1].size < SMALL:
            return None
        # A function that JAX traces would make the program a part of its own.
        if not jax_traces.is_clean() or not (self._tables or self._compile(images[0])):
            return None
        try:
            made = [np.asarray(_Result(_resize(x, *self._tables))) for x in images]
        except jax.errors.JaxRuntimeError:
            # There is no memory, or the program has told JAX to refuse transfers.
            return None
        return made[0][None] if len(made) == 1 else np.stack(made)

    def _compile(self, image: np.ndarray) -> bool:
        """Whether the program could be made; not if another thread is making it."""
        device = host_device.find()
        if device is None or not self._compiling.acquire(blocking=False):
            return False
        try:
            # Unsigned, so that the program has no steps for negative ones.
            indices = [taps.indices.astype(np.uint32) for taps in self._taps]
            weights = [taps.weights[0] for taps in self._taps]
            tables = jax.device_put([*indices, *weights, np.uint32(0)], device)
            _resize(image, *tables)
            self._tables = tables
        except jax.errors.JaxRuntimeError:
            return False
        finally:
            self._compiling.release()
        return True


find = functools.lru_cache(Resizing)
