"""The random bits of TensorFlow's Philox generator, and the numbers it makes of them.

A counter of 128 bits and a key of 64 bits give four random words of 32 bits; the next
counter gives the next four. Words are 32 bits wide here, so that the numbers do not
depend on whether JAX has 64-bit types. The algorithm is Philox4x32-10 of "Parallel
Random Numbers: As Easy as 1, 2, 3" (Salmon and others, 2011).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

_Shape: TypeAlias = tuple[int, ...]
_F = TypeVar("_F", bound=Callable[..., jax.Array])

# The size of the state in words: the counter's, and then the key's.
COUNTER_WORDS = 4
WORDS = 6
# How far TensorFlow moves the counter for one number. A truncated normal may use as
# many words, and the other numbers use at most four.
RESERVED = 256

# The multipliers of a round, and the steps of the key between rounds: those of the
# paper.
_M0, _M1 = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)


def _compiled(*static: int) -> Callable[[_F], _F]:
    """Returns `jax.jit` as a decorator that keeps the type of a function."""
    given = functools.partial(jax.jit, static_argnums=static)
    return cast("Callable[[_F], _F]", given)


def _multiply(a: np.uint32, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the high and the low word of a product, by halves of 16 bits."""
    # JAX without 64-bit types has no product of 64 bits.
    low = np.uint32(0xFFFF)
    a0, a1 = np.uint32(a & low), np.uint32(a >> np.uint32(16))
    b0, b1 = b & low, b >> 16
    first, second = a0 * b0, a1 * b0
    middle = (first >> 16) + (second & low) + a0 * b1 % (1 << 16)
    high = a1 * b1 + (second >> 16) + (a0 * b1 >> 16) + (middle >> 16)
    return high, jnp.uint32(a) * b


def _add(
    counter: list[jax.Array], low: ArrayLike, high: ArrayLike = 0
) -> list[jax.Array]:
    """Returns a counter of four words, the lowest first, plus a number of two."""
    # A sum of words has overflowed if it is less than one of them.
    c0 = counter[0] + low
    carry = (c0 < low).astype(jnp.uint32)
    part = counter[1] + jnp.uint32(high)
    overflow = part < counter[1]
    c1 = part + carry
    carry = (overflow | (c1 < carry)).astype(jnp.uint32)
    c2 = counter[2] + carry
    c3 = counter[3] + (c2 < carry).astype(jnp.uint32)
    return [c0, c1, c2, c3]


def _blocks(key: list[jax.Array], counter: list[jax.Array]) -> jax.Array:
    """Returns the four words of each counter, along a last axis."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        high0, low0 = _multiply(_M0, c0)
        high1, low1 = _multiply(_M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _W0, k1 + _W1
    return jnp.stack([c0, c1, c2, c3], -1)


def advance(state: jax.Array, count: int) -> jax.Array:
    """Returns the state after `count` numbers were drawn."""
    delta = RESERVED * count
    low, high = np.uint32(delta & 0xFFFFFFFF), np.uint32(delta >> 32 & 0xFFFFFFFF)
    return _move(state, low, high)


@_compiled()
def _move(state: jax.Array, low: np.uint32, high: np.uint32) -> jax.Array:
    moved = _add(list(state[:COUNTER_WORDS]), low, high)
    return jnp.concatenate([jnp.stack(moved), state[COUNTER_WORDS:]])


@_compiled()
def fold_in_replica(state: jax.Array, replica: ArrayLike) -> jax.Array:
    """Returns the state whose key is a hash of the key and of a replica's number."""
    zero = jnp.uint32(0)
    number = jnp.asarray(replica).astype(jnp.uint32)
    block = _blocks(list(state[COUNTER_WORDS:]), [number, zero, zero, zero])
    return jnp.concatenate([state[:COUNTER_WORDS], block[:2]])


@_compiled(1, 2)
def words(state: jax.Array, shape: tuple[int, ...], each: int = 1) -> jax.Array:
    """Returns random words in a shape, with an axis for the words of each number.

    Args:
        state: the counter and the key, as six words.
        shape: the shape of the numbers.
        each: how many words a number has.
    """
    count = math.prod(shape) * each
    # A block gives four words, so this is how many counters are needed.
    index = jnp.arange(-(-count // 4), dtype=jnp.uint32)
    counter = _add([jnp.broadcast_to(w, index.shape) for w in state[:4]], index)
    found = _blocks(list(state[COUNTER_WORDS:]), counter)
    return found.reshape(-1)[:count].reshape(*shape, each)


def _bits_of(kind: DTypeLike) -> tuple[int, int]:
    """Returns the bits of a float type, and those of its fraction."""
    told: Any = jnp.finfo(kind)  # type: ignore[no-untyped-call]
    return told.bits, told.nmant


def _fraction(word: jax.Array, kind: DTypeLike) -> jax.Array:
    """Returns numbers from 0 to 1 of the lowest bits of a word each."""
    bits = _bits_of(kind)[1]
    as_word = jnp.uint16 if bits < 16 else jnp.uint32
    # The bits of 1.0 with a random fraction are a number from 1 to 2.
    one = jax.lax.bitcast_convert_type(jnp.ones((), kind), as_word)
    mantissa = (word & np.uint32((1 << bits) - 1)).astype(as_word)
    return jax.lax.bitcast_convert_type(one | mantissa, kind) - jnp.ones((), kind)


def _wide_fraction(high: jax.Array, low: jax.Array) -> jax.Array:
    """Returns float64 numbers from 0 to 1 of two words each."""
    whole = (high & np.uint32(0xFFFFF)).astype(jnp.uint64) << 32
    bits = jnp.uint64(1023 << 52) | whole | low.astype(jnp.uint64)
    return jax.lax.bitcast_convert_type(bits, jnp.float64) - 1.0


@_compiled(1, 2)
def uniform(state: jax.Array, shape: _Shape, kind: DTypeLike) -> jax.Array:
    """Returns floats from 0 to 1."""
    if _bits_of(kind)[0] == 64:
        found = words(state, shape, 2)
        return _wide_fraction(found[..., 0], found[..., 1])
    return _fraction(words(state, shape)[..., 0], kind)


def _box_muller(first: jax.Array, second: jax.Array) -> jax.Array:
    """Returns two normal numbers for two uniform ones, along a last axis."""
    # TensorFlow's bound, which keeps the logarithm finite.
    radius = jnp.sqrt(-2.0 * jnp.log(jnp.maximum(first, 1e-7)))
    angle = 2.0 * math.pi * second
    return jnp.stack([jnp.sin(angle) * radius, jnp.cos(angle) * radius], -1)


@_compiled(1, 2)
def normal(state: jax.Array, shape: _Shape, kind: DTypeLike) -> jax.Array:
    """Returns numbers of the standard normal distribution."""
    count = math.prod(shape)
    pairs = -(-count // 2)
    if _bits_of(kind)[0] == 64:
        x = words(state, (pairs,), 4)
        first = _wide_fraction(x[:, 0], x[:, 1])
        found = _box_muller(first, _wide_fraction(x[:, 2], x[:, 3]))
    else:
        x = words(state, (pairs,), 2)
        found = _box_muller(
            _fraction(x[:, 0], jnp.float32), _fraction(x[:, 1], jnp.float32)
        )
    return found.reshape(-1)[:count].reshape(shape).astype(kind)


# The numbers found, how many of each group are, and the block to look at.
_Carry: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]

# The bound of a truncated normal, in standard deviations.
_BOUND = 2.0


@_compiled(1, 2)
def truncated_normal(
    state: jax.Array, shape: tuple[int, ...], kind: DTypeLike
) -> jax.Array:
    """Returns normal numbers within two standard deviations.

    As many numbers as a block has room for, four or two, are a group. A group has
    counters of its own, and takes the first of their normal numbers that fit.
    """
    # TensorFlow draws numbers in groups. Each group has a range of counters of its own,
    # and takes from it until enough numbers are within the bound.
    is_wide = _bits_of(kind)[0] == 64
    size = 2 if is_wide else 4
    group = jnp.arange(-(-math.prod(shape) // size), dtype=jnp.uint32)
    counters = size * RESERVED // 4
    starts = [jnp.broadcast_to(w, group.shape) for w in state[:COUNTER_WORDS]]
    base = _add(starts, *_multiply(np.uint32(counters), group)[::-1])

    def draw(block: jax.Array) -> jax.Array:
        """Returns the normal numbers of the counter `block` of each group."""
        x = _blocks(
            list(state[COUNTER_WORDS:]), _add(base, jnp.full_like(group, block))
        )
        if is_wide:
            first = _wide_fraction(x[:, 0], x[:, 1])
            return _box_muller(first, _wide_fraction(x[:, 2], x[:, 3]))
        u = _fraction(x, jnp.float32)
        return jnp.concatenate(
            [_box_muller(u[:, 0], u[:, 1]), _box_muller(u[:, 2], u[:, 3])], -1
        )

    def is_open(carry: _Carry) -> jax.Array:
        return jnp.any(carry[1] < size)

    def look(carry: _Carry) -> _Carry:
        found, filled, block = carry
        for candidate in draw(block).T:
            fits = jnp.abs(candidate) < _BOUND
            # The next free place of each group; none if the group is full.
            place = (jnp.arange(size) == filled[:, None]) & fits[:, None]
            found = jnp.where(place, candidate[:, None], found)
            filled = filled + fits
        return found, filled, block + jnp.uint32(1)

    inner = jnp.float64 if is_wide else jnp.float32
    empty = jnp.zeros((group.size, size), inner)
    start = empty, jnp.zeros(group.shape, jnp.int32), jnp.uint32(0)
    found, _, _ = jax.lax.while_loop(is_open, look, start)
    return found.reshape(-1)[: math.prod(shape)].reshape(shape).astype(kind)


@_compiled(1, 2)
def full_integers(
    state: jax.Array, shape: tuple[int, ...], kind: DTypeLike
) -> jax.Array:
    """Returns integers of the whole range of a type of 32 or 64 bits."""
    if 8 * np.dtype(kind).itemsize == 32:
        found = words(state, shape)[..., 0]
    else:
        pair = words(state, shape, 2).astype(jnp.uint64)
        found = pair[..., 0] | pair[..., 1] << 32
    return jax.lax.bitcast_convert_type(found, kind)


@_compiled(1, 2)
def integers(
    state: jax.Array,
    shape: tuple[int, ...],
    kind: DTypeLike,
    low: ArrayLike,
    high: ArrayLike,
) -> jax.Array:
    """Returns integers from `low` to before `high`, in a type of 32 or 64 bits."""
    bits = 8 * np.dtype(kind).itemsize
    whole = jnp.uint32 if bits == 32 else jnp.uint64
    found = full_integers(state, shape, whole)
    low, high = jnp.asarray(low, kind), jnp.asarray(high, kind)
    # Without a sign: the difference may be larger than the largest signed number.
    span = jax.lax.bitcast_convert_type(high - low, whole)
    return low + jax.lax.bitcast_convert_type(found % span, kind)


_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
# TensorFlow's key for the seeds of stateless operations.
_SCRAMBLE_KEY = (0x3EC8F720, 0x02461E29)


def host_words(state: np.ndarray, count: int) -> np.ndarray:
    """Returns `count` random words of a state of six words.

    >>> host_words(np.arange(6, dtype=np.uint32), 3).tolist()
    [3290935133, 3881757242, 1203941666]
    """
    counter = int.from_bytes(state[:COUNTER_WORDS].tobytes(), "little")
    key = tuple(state[COUNTER_WORDS:].tolist())
    found: list[int] = []
    for number in range(-(-count // 4)):
        found += _block(counter + number, *key)
    return np.array(found[:count], np.uint32)


def _block(counter: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Returns the four words of a counter."""
    c0, c1, c2, c3 = (counter >> shift & _WORD for shift in (0, 32, 64, 96))
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1 = second >> 32 ^ c1 ^ k0, second & _WORD
        c2, c3 = first >> 32 ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + _STEPS[0]) & _WORD, (k1 + _STEPS[1]) & _WORD
    return c0, c1, c2, c3


def scramble(seed: np.ndarray) -> np.ndarray:
    """Returns the state that TensorFlow makes of the seed of a stateless operation.

    Args:
        seed: two integers.
    """
    halves = seed.astype(np.int64).view(np.uint32)
    mixed = host_words(np.array([*halves, *_SCRAMBLE_KEY], np.uint32), 4)
    return np.array([0, 0, *mixed[2:], *mixed[:2]], np.uint32)


def fractions(drawn: np.ndarray) -> np.ndarray:
    """Returns float32 numbers from 0 to 1 of a word each."""
    bits = drawn & np.uint32(0x7FFFFF) | np.uint32(0x3F800000)
    return bits.view(np.float32) - np.float32(1)
