"""Bilinear resizing of photos on the host by a program of XLA.

It takes a third of the time that NumPy takes, and gives the same numbers to the last
bit.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.ops.host import host_programs
from unisono._src.ops.images.sampling import Taps


def _resize(y: Taps, x: Taps, zero: jax.Array, image: jax.Array) -> jax.Array:
    """Returns what is between two columns, and then between two rows.

    Args:
        y: which rows the rows of the result are made of.
        x: which pixels of a row the pixels of the result are made of.
        zero: nothing, which the compiler does not know.
        image: the image.
    """

    def take(image: jax.Array, key: object) -> jax.Array:
        found: jax.Array = image.at[key].get(mode="promise_in_bounds")
        return found.astype(jnp.float32)

    def mix(low: jax.Array, high: jax.Array, weight: np.ndarray) -> jax.Array:
        # The processor may add a product before it is rounded, which gives other
        # numbers than TensorFlow's. Not a product whose bits have changed.
        bits = jax.lax.bitcast_convert_type((high - low) * weight, jnp.uint32)
        return low + jax.lax.bitcast_convert_type(bits ^ zero, jnp.float32)

    # Unsigned, so that the program has no steps for negative ones.
    rows, columns = (taps.indices.astype(np.uint32) for taps in (y, x))
    low, high = (take(image, (slice(None), index)) for index in columns)
    mixed = mix(low, high, x.weights[0][:, None])
    low, high = (take(mixed, index) for index in rows)
    return mix(low, high, y.weights[0][:, None, None])


@functools.lru_cache
def find(y: Taps, x: Taps, channels: int) -> host_programs.Program:
    """Returns the program for images of uint8.

    Args:
        y: which rows the rows of the result are made of.
        x: which pixels of a row the pixels of the result are made of.
        channels: how many numbers a pixel has; each has a program of its own.
    """
    return host_programs.Program(functools.partial(_resize, y, x), np.uint32(0))
