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


def _resize(
    rows: jax.Array,
    columns: jax.Array,
    row_weights: jax.Array,
    column_weights: jax.Array,
    zero: jax.Array,
    image: jax.Array,
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


@functools.lru_cache
def find(y: Taps, x: Taps, channels: int) -> host_programs.Program:
    """Returns the program for images of uint8.

    Args:
        y: which rows the rows of the result are made of.
        x: which pixels of a row the pixels of the result are made of.
        channels: how many numbers a pixel has; each has a program of its own.
    """

    def make_tables() -> list[np.ndarray | np.generic]:
        # Unsigned, so that the program has no steps for negative ones.
        indices = [taps.indices.astype(np.uint32) for taps in (y, x)]
        return [*indices, y.weights[0], x.weights[0], np.uint32(0)]

    return host_programs.Program(_resize, make_tables)
