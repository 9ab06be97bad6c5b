"""Checksums of the bits of arrays, computed on the devices that hold them.

A checksum is a number of 32 bits. Each word of an array is mixed with its position by a
function that maps different words to different numbers, and these are added modulo
2**32. So a change within one word always changes the checksum. Any other change does,
but for one chance in 2**32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# One program computes the checksums of so many small arrays. XLA compiles larger ones
# for too long, and all arrays behind a new one would be compiled again.
_PER_PROGRAM = 256
# In bytes. A larger array has a program of its own: XLA would store the words of all
# before it adds any.
LARGE = 1 << 18
# In elements: how much of an array is mixed at a time.
_BLOCK = 1 << 20
_AXIS = "copy"
_WHOLE = PartitionSpec()
# Constants of two well-known mixing functions: the golden ratio, and MurmurHash3's.
_SPREAD, _FIRST, _SECOND = (np.uint32(n) for n in (0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35))
_WORDS = {4: jnp.uint4, 8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32, 64: jnp.uint32}

_Program = Callable[[list[jax.Array]], jax.Array]


def sum_bits(x: jax.Array) -> jax.Array:
    """Returns the checksum of one array; code that JAX compiles may call it.

    >>> a, b = sum_bits(jnp.float32([0.0, 1.0])), sum_bits(jnp.float32([-0.0, 1.0]))
    >>> bool(a == b)
    False
    """
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return sum_bits(jnp.stack([x.real, x.imag]))
    rows = _BLOCK // max(1, x[:1].size) if x.ndim else 0
    if x.size <= _BLOCK or not rows:
        return _sum_rows(x, np.uint32(0))

    # On the CPU XLA stores the mixed words before it adds them. In blocks they take
    # little memory, and stay in the cache.
    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        start = i * rows
        block = lax.dynamic_slice_in_dim(x, start, rows)
        return total + _sum_rows(block, start.astype(jnp.uint32))

    whole = x.shape[0] // rows
    total: jax.Array = lax.fori_loop(0, whole, add, jnp.uint32(0))
    rest = x[whole * rows :]
    return total + _sum_rows(rest, np.uint32(whole * rows % (1 << 32)))


def _sum_rows(x: jax.Array, first: jax.Array | np.uint32) -> jax.Array:
    """Returns the part of a checksum that some rows have.

    Args:
        x: the rows, or an array without axes.
        first: the number of the first of them in the whole array.
    """
    words = _to_words(x)
    place, stride = jnp.zeros(words.shape, jnp.uint32), 1
    for axis in reversed(range(words.ndim)):
        # A product for each axis, instead of a flat array: the layout on the device
        # stays as it is.
        along = lax.broadcasted_iota(jnp.uint32, words.shape, axis)
        along = along if axis else along + first
        place += along * np.uint32(stride % (1 << 32))
        stride *= words.shape[axis]
    return jnp.sum(_mix(words ^ (place * _SPREAD)), dtype=jnp.uint32)


def _to_words(x: jax.Array) -> jax.Array:
    """Returns the bits of an array's elements, in words of 32 bits or fewer."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    is_whole = jnp.issubdtype(x.dtype, jnp.integer)
    bits = (jnp.iinfo if is_whole else jnp.finfo)(x.dtype).bits
    if is_whole and bits < 8:
        return _to_words(x.astype(jnp.int8))
    # An element of 64 bits becomes a row of two words.
    return lax.bitcast_convert_type(x, _WORDS[bits]).astype(jnp.uint32)


def _mix(x: jax.Array) -> jax.Array:
    """Returns other words, one for each word, in which every bit depends on all."""
    x = (x ^ (x >> 16)) * _FIRST
    x = (x ^ (x >> 13)) * _SECOND
    return x ^ (x >> 16)


def sum_copies(
    arrays: Sequence[jax.Array], devices: Sequence[jax.Device]
) -> list[jax.Array]:
    """Starts to compute the checksums of arrays that devices of this process copy.

    Args:
        arrays: arrays of which each of the devices has a whole copy; those of up to
            `LARGE` bytes first, so that few programs compute them.
        devices: the devices.

    Returns:
        Arrays of shape (devices, arrays), the first of the arrays first. Nobody waits
        for them here.
    """
    mesh = Mesh(np.array(devices, dtype=object), (_AXIS,))
    parts: list[list[jax.Array]] = []
    for x in arrays:
        is_next = bool(parts) and max(x.nbytes, parts[-1][-1].nbytes) <= LARGE
        if not is_next or len(parts[-1]) == _PER_PROGRAM:
            parts.append([])
        parts[-1].append(_view(x, mesh))
    return [_program(mesh)(part) for part in parts]


def _view(x: jax.Array, mesh: Mesh) -> jax.Array:
    """Returns the copies of an array on the devices of a mesh, as one array."""
    by_device = {shard.device: shard.data for shard in x.addressable_shards}
    return jax.make_array_from_single_device_arrays(
        x.shape,
        NamedSharding(mesh, _WHOLE),
        [by_device[device] for device in mesh.devices.flat],
    )


@functools.cache
def _program(mesh: Mesh) -> _Program:
    """Returns what computes a row of checksums on each device of a mesh."""

    def run(arrays: list[jax.Array]) -> jax.Array:
        return jnp.stack([sum_bits(x) for x in arrays])[None]

    # The devices compute for themselves. To JAX their arrays are copies, and the very
    # question is whether they are.
    each = jax.shard_map(
        run, mesh=mesh, in_specs=_WHOLE, out_specs=PartitionSpec(_AXIS), check_vma=False
    )
    return jax.jit(each)
