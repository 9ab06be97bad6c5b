"""The seeds and the state behind `random.uniform` and its like.

The rules are those of ``tf.random.set_seed``. Eager numbers are TensorFlow's own for
the same seeds: an operation with a seed counts how much it has drawn, and one without
takes the next seed of a sequence that the global seed begins. A compiled `function` has
a `Generator` for each of its operations with a seed, and one for all others, in each
strategy. The state of a generator is a variable. Outside replicas a function draws the
same numbers on all workers, because it may assign them to a variable that they share.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import threading
import weakref
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, errors, global_seed, whole_numbers
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.state import branch_frame, frames, trace_versions
from unisono._src.training import philox, random_generator
from unisono._src.values import jax_traces
from unisono._src.workers import process_group

# How far an eager operation moves its counter for one number.
_RESERVED = 256
# How far the counter of each eager operation with a seed has come.
_drawn: dict[tuple[str, int, int], int] = {}
_lock = threading.Lock()
# How many functions of each name draw the same numbers on all workers.
_named: collections.Counter[str] = collections.Counter()
# The generators of compiled functions: by function, by strategy, and by the seed and
# the number of the operation. Programs that cannot be keys share those of `_Shared`.
_Streams = weakref.WeakKeyDictionary[Any, dict[Any, random_generator.Generator]]


@final
class _Shared:
    """Stands for a function that cannot be a key, or for no strategy."""


_shared = _Shared()
_streams: weakref.WeakKeyDictionary[Any, _Streams] = weakref.WeakKeyDictionary()

# Keras traces the `call` of a layer by itself.
IN_LAYERS = (
    "In a layer of Keras write keras.random.normal(shape, seed=self.seed) or its like, "
    "and self.seed = keras.random.SeedGenerator() in __init__."
)


@everyday_name("random.set_seed")
def set_seed(seed: int | None) -> None:
    """Sets the global seed, which determines all random numbers of the program.

    This restarts the random numbers of all operations, also in compiled functions. The
    rules are TensorFlow's. An operation with its own seed gives the same numbers in
    every program with this global seed. The numbers of an operation without a seed also
    depend on how many such operations were called before it; a dataset that is shuffled
    without a seed counts as one of them.

    Args:
        seed: an integer, or None for numbers that differ between runs. None is in
            effect before the first call.

    Raises:
        RuntimeError: `set_seed` is called in a `function`.
        TypeError: `seed` is not an integer.

    >>> import unisono
    >>> unisono.random.set_seed(1234)
    >>> first = unisono.random.uniform([2])
    >>> unisono.random.set_seed(1234)
    >>> bool((unisono.random.uniform([2]) == first).all())
    True
    """
    if seed is not None:
        seed = whole_numbers.integer(seed, "seed")
    if frames.frame().is_compiled:
        raise RuntimeError(
            "random.set_seed was called in a function, which runs this line only when "
            "it is traced. Call it before the function."
        )
    global_seed.set_seed(seed)
    _drawn.clear()
    # Generators are reset, not dropped: compiled functions have them as variables.
    for by_strategy in _streams.values():
        for streams in by_strategy.values():
            for (op_seed, _), generator in streams.items():
                # A strategy that was shut down has no servers, and draws no more.
                with contextlib.suppress(errors.UnavailableError):
                    generator.reset(_first_state(op_seed))


def get_state() -> tuple[object, dict[tuple[str, int, int], int]]:
    """Returns the global seed and how much eager operations have drawn."""
    return global_seed.get_state(), dict(_drawn)


def set_state(state: tuple[object, dict[tuple[str, int, int], int]]) -> None:
    """Goes back to what `get_state` has returned."""
    seed, drawn = state
    global_seed.set_state(seed)
    _drawn.clear()
    _drawn.update(drawn)


def _state(key: int, high: int, low: int = 0) -> np.ndarray:
    """Returns the six words of a key and of a counter's two halves."""
    return np.array([low, high, key], np.uint64).view(np.uint32)


def take(count: int, seed: int | None, kind: str) -> jax.Array:
    """Returns the words of which an operation draws its numbers.

    Args:
        count: how many numbers it draws.
        seed: the seed of the operation, or None.
        kind: the name of the operation and the type of its numbers. TensorFlow counts
            for each of them by itself.

    Raises:
        RuntimeError: the code is in a function given to `jax.jit` or its like, outside
            `unisono.function`.
        ValueError: the code is in a function that is being saved.
    """
    if seed is not None:
        seed = whole_numbers.integer(seed, "seed")
    frame = frames.frame()
    if frame.is_compiled:
        return _take_traced(count, seed)
    if not jax_traces.is_eager(jax_traces.reading_trace()):
        raise RuntimeError(
            f"random.{kind.partition(' ')[0]} was called inside a function given to "
            "jax.jit, lax.scan or the like, outside unisono.function. It would give "
            "the same numbers in all calls. Use unisono.function, or a stateless_ "
            f"function with a seed that is an argument. {IN_LAYERS}"
        )
    return _own_words(jnp.asarray(take_on_host(count, seed, kind)))


def take_on_host(count: int, seed: int | None, kind: str) -> np.ndarray:
    """Returns the words of a draw outside programs and replicas; see `take`."""
    if seed is not None:
        seed = whole_numbers.integer(seed, "seed")
    first, second = global_seed.make_pair(seed)
    low = 0
    if seed is not None:
        with _lock:
            low = _drawn.get((kind, first, second), 0)
            # Like TensorFlow's kernels, which count in their own state.
            _drawn[kind, first, second] = low + _RESERVED * count
    return _state(first, second, low)


def _own_words(words: jax.Array) -> jax.Array:
    """Returns the words of the running replica; every other replica gets others."""
    frame = ambient.current()
    if frame.replica is None or frame.replica.num_replicas_in_sync == 1:
        return jnp.asarray(words)
    number = frame.replica.replica_id_in_sync_group
    return philox.fold_in_replica(words, number)


def _take_traced(count: int, seed: int | None) -> jax.Array:
    """Returns the words of a draw in a program, and moves the program's state on."""
    # Not the frame of a branch, loop body or replica: an operation there has another
    # number than those around it.
    frame, number = frames.outermost(), 0
    if frame.program is None:
        # `saved_model.save` traces it. The state would stay in this process.
        raise ValueError(
            "it draws random numbers, whose state the saved object does not have. Draw "
            "them from a random.Generator that is an attribute, or with a stateless_ "
            "function of unisono.random and a seed that is an argument"
        )
    if seed is not None:
        # Each operation with a seed counts for itself, so two of them are alike.
        # A frame lives as long as a trace: the next trace of the function counts from 1
        # again, and finds the same generators.
        frame.seeded += 1
        number = frame.seeded
    generator = _find(frame.program, seed, number)
    _check_not_in_body(generator)
    state = jnp.asarray(generator.skip(count))
    # With 64-bit types the state has three words of them, and otherwise six of 32.
    if state.dtype != jnp.uint32:
        state = jax.lax.bitcast_convert_type(state, jnp.uint32).reshape(-1)
    if ambient.current().mode != ambient.REPLICA:
        return state
    return _own_words(state)


def _check_not_in_body(generator: random_generator.Generator) -> None:
    """Raises if a parameter server has the state, and a loop or branch would draw."""
    is_in_body = isinstance(frames.frame(), branch_frame.BranchFrame)
    if is_in_body and generator.state.state_cell.home is not None:
        raise RuntimeError(
            "Random numbers were drawn in a loop or branch of a function for a "
            "ParameterServerStrategy, whose servers move the state of the numbers on "
            "when the function begins. Draw all of them before, as in "
            "unisono.random.uniform([steps, size]); or use unisono.random."
            "stateless_uniform(shape, seed=[x, i]), with a number x drawn before and "
            "the counter i of the loop."
        )


def _find(program: Any, seed: int | None, number: int) -> random_generator.Generator:
    """Returns the generator of a draw; makes it, and asks for a new trace, if new."""
    if type(program).__hash__ is None:
        program = _shared
    outer = ambient.current()
    by_strategy = _streams.setdefault(program, weakref.WeakKeyDictionary())
    owner = _shared if outer.strategy is None else outer.strategy
    streams = by_strategy.setdefault(owner, {})
    if (seed, number) not in streams:
        mode = ambient.REPLICA if outer.strategy is None else ambient.CROSS
        here = ambient.ROOT._replace(
            strategy=outer.strategy, placement=outer.placement, mode=mode
        )
        # The generator outlives the trace, so it is made outside of it, as if at the
        # top of the strategy's scope.
        ambient.swap(here)
        try:
            with jax_traces.compute_at_once():
                state = _first_state(seed)
                if seed is None and outer.strategy is None:
                    state = _agree_on_state(program, state)
                made = random_generator.Generator(
                    state=state, alg=random_generator.Algorithm.PHILOX
                )
        finally:
            ambient.swap(outer)
        # Another thread may have made one meanwhile; all must draw from the same.
        streams.setdefault((seed, number), made)
        # The trace has begun without the generator's variable, which is an input.
        raise trace_versions.NeedsNewTrace
    return streams[seed, number]


def _first_state(seed: int | None) -> np.ndarray:
    """Returns the state with which the generator of a function begins."""
    given = global_seed.get_seed()
    if seed is None and given is not None:
        return _state(given, 0)
    return _state(*global_seed.make_pair(seed))


def _agree_on_state(program: Any, own: np.ndarray) -> np.ndarray:
    """Returns the first state of a function outside replicas, equal on all workers.

    It does not depend on what else a worker has drawn.

    Args:
        program: the function.
        own: the state that it would have without other workers.
    """
    agreed = process_group.agreed_seed()
    if agreed is None or global_seed.get_seed() is not None:
        return own
    name = (
        f"{getattr(program, '__module__', '')} {getattr(program, '__qualname__', '')}"
    )
    # Functions of one name are told apart by the order in which they draw first.
    _named[name] += 1
    text = f"{agreed} {name} {_named[name]}"
    found = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint64)
    return _state(int(found[0]), int(found[1]))


def key_of(words: jax.Array) -> jax.Array:
    """Returns a key of `jax.random` for the words of a draw."""
    bits = philox.words(words, (2,))[..., 0]
    found: jax.Array = jax.random.wrap_key_data(bits, impl="threefry2x32")
    return found


def words_of_stateless_seed(seed: object) -> jax.Array:
    """Returns the words that TensorFlow makes of the seed of a stateless operation.

    Args:
        seed: two integers, which may be computed by a program.
    """
    given = seed if isinstance(seed, jax.Array) else np.asarray(seed)
    if given.dtype.itemsize == 8 and not isinstance(given, jax.Array):
        halves = jnp.asarray(given.astype(np.int64).view(np.uint32))
    elif given.dtype.itemsize == 8:
        halves = jax.lax.bitcast_convert_type(given, jnp.uint32).reshape(-1)
    else:
        low = jnp.asarray(given).astype(jnp.int32)
        # The upper half of a negative number has all bits set.
        halves = jnp.stack([low, low >> 31], -1).reshape(-1).astype(jnp.uint32)
    words: jax.Array = _scramble(halves)
    return words


# TensorFlow's constants.
_SCRAMBLE_KEY = np.array([0x3EC8F720, 0x02461E29], np.uint32)


@jax.jit
def _scramble(counter: jax.Array) -> jax.Array:
    """Returns a key and a counter from a seed, mixed so that weak seeds are safe."""
    state = jnp.concatenate([counter, jnp.asarray(_SCRAMBLE_KEY)])
    mixed = philox.words(state, (4,))[..., 0]
    nothing = jnp.zeros(2, jnp.uint32)
    return jnp.concatenate([nothing, mixed[2:], mixed[:2]])
