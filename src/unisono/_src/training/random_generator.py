"""`Generator`: TensorFlow's random numbers, drawn from a state that is a variable."""

from __future__ import annotations

import enum
import functools
import math
import operator
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from unisono._src.foundation import ambient, errors, host_numbers, jax_types
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.input.plan import elements
from unisono._src.state import assignment
from unisono._src.state.variables import Variable
from unisono._src.training import philox
from unisono._src.values import jax_traces


class Algorithm(enum.Enum):
    """Algorithms for random numbers; the values are those of TensorFlow.

    >>> Algorithm.PHILOX.value
    1
    """

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


Seed: TypeAlias = int | Sequence[int] | np.ndarray
State: TypeAlias = Sequence[int] | np.ndarray | jax.Array | Variable
# The size of a state in numbers of 64 bits.
_SIZES = {1: 3, 2: 2, 3: 3}
_MASK = (1 << 64) - 1


def create_rng_state(seed: Seed, alg: str | int | Algorithm) -> np.ndarray:
    """Returns the state of a generator for a seed, as an int64 array.

    Args:
        seed: an integer of any size, or a list of integers.
        alg: an `Algorithm`, its name or its number.

    Raises:
        ValueError: the algorithm is unknown.

    >>> create_rng_state(1234, "philox").tolist()
    [1234, 0, 0]
    >>> create_rng_state([12, 34], "philox").tolist()
    [0, 12, 34]
    """
    size = _SIZES[_number_of(alg)]
    if isinstance(seed, int):
        given = [seed >> 64 * i & _MASK for i in range(size)]
    else:
        given = [int(x) & _MASK for x in np.ravel(np.asarray(seed, object))][:size]
    # As in TensorFlow: a number fills the state from its low end, a short list fills
    # its last places.
    padded = [0] * (size - len(given)) + given
    return np.array(padded, np.uint64).view(np.int64)


def _number_of(alg: object) -> int:
    """Returns the number of an algorithm."""
    if isinstance(alg, Algorithm):
        return int(alg.value)
    if isinstance(alg, str) and alg.upper() in Algorithm.__members__:
        return int(Algorithm[alg.upper()].value)
    if not isinstance(alg, str) and alg in _SIZES:
        return operator.index(alg)
    raise ValueError(
        f"Argument `alg` got unsupported value {alg}. Supported values are philox for "
        "the Philox algorithm, threefry for the ThreeFry algorithm, and auto_select "
        "for auto-selection."
    )


@final
class Generator:
    """Draws random numbers, which for the same seed are the same as in TensorFlow.

    If you create a generator in a strategy's scope, each replica gets different
    numbers. The state of a generator is a variable: compiled steps change it, and
    checkpoints save it.

    Args:
        copy_from: a generator whose state and algorithm the new one gets.
        state: three int64 numbers: two for the counter and one for the key; or a
            variable, which the generator then uses.
        alg: an `Algorithm`, its name or its number.

    Raises:
        AssertionError: the arguments are neither `copy_from` alone nor `state` and
            `alg`.
        NotImplementedError: the algorithm is ThreeFry.
        ValueError: the algorithm is unknown, or the state has the wrong size.

    >>> generator = Generator.from_seed(1234)
    >>> generator.uniform([3], 0, 10, dtype=np.int32).tolist()
    [9, 6, 4]
    """

    def __init__(
        self,
        copy_from: Generator | None = None,
        state: State | None = None,
        alg: str | int | Algorithm | None = None,
    ) -> None:
        # The strategy in whose scope it is made: replicas get streams of their own.
        self._strategy = ambient.current().strategy
        if copy_from is not None:
            _require(state is None and alg is None, "copy_from alone")
            state, alg = copy_from.state.read_value(), copy_from.algorithm
        _require(state is not None and alg is not None, "both `state` and `alg`")
        self._alg = _number_of(alg)
        if self._alg == Algorithm.THREEFRY.value:
            raise NotImplementedError(
                "The ThreeFry algorithm is not supported; TensorFlow has it on TPUs "
                "only. Pass alg='philox'."
            )
        if isinstance(state, Variable):
            _check_size(state.shape)
            self._state_var = state
            return
        self._state_var = Variable(
            _as_state(state),
            trainable=False,
            name="StateVar",
            # Each replica counts for itself. All draw alike as a rule; then the first
            # one's count is everyone's, also for a checkpoint.
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @classmethod
    def from_state(cls, state: State, alg: str | int | Algorithm) -> Generator:
        """Returns a generator with the given state; see the class.

        >>> Generator.from_state([1, 2, 3], alg="philox").key.numpy()
        np.int64(3)
        """
        return cls(alg=alg, state=state)

    @classmethod
    def from_seed(
        cls, seed: Seed, alg: str | int | Algorithm | None = None
    ) -> Generator:
        """Returns a generator for a seed.

        Args:
            seed: an integer, or a list of integers.
            alg: an `Algorithm`, its name or its number; Philox by default.

        >>> float(Generator.from_seed(7).normal([]))
        -1.324...
        """
        chosen = Algorithm.PHILOX if alg is None else alg
        return cls(state=create_rng_state(seed, chosen), alg=chosen)

    @classmethod
    def from_non_deterministic_state(
        cls, alg: str | int | Algorithm | None = None
    ) -> Generator:
        """Returns a generator that draws different numbers in every run.

        Args:
            alg: an `Algorithm`, its name or its number; Philox by default.

        >>> Generator.from_non_deterministic_state().normal([2]).shape
        (2,)
        """
        chosen = Algorithm.PHILOX if alg is None else alg
        size = _SIZES[_number_of(chosen)]
        return cls(state=np.frombuffer(os.urandom(8 * size), np.int64), alg=chosen)

    @classmethod
    def from_key_counter(
        cls, key: int, counter: Sequence[int], alg: str | int | Algorithm
    ) -> Generator:
        """Returns a generator with the given key and counter.

        Args:
            key: a 64-bit integer.
            counter: two 64-bit integers, the low one first.
            alg: an `Algorithm`, its name or its number.

        Raises:
            ValueError: the key or the counter has the wrong shape.

        >>> Generator.from_key_counter(3, [1, 2], "philox").key.numpy()
        np.int64(3)
        """
        return cls(state=_join(key, counter), alg=alg)

    @property
    def state(self) -> Variable:
        """The state: the two parts of the counter, and the key, as int64 numbers.

        Without JAX's 64-bit types, it is six uint32 numbers, the low half of each
        number first.

        >>> Generator.from_seed(5).state.numpy().tolist()
        [5, 0, 0, 0, 0, 0]
        """
        return self._state_var

    @property
    def key(self) -> host_numbers.HostInt64 | jax.Array:
        """The key as an int64, or its two halves in programs without 64-bit types.

        >>> Generator.from_seed([1, 2, 3]).key.numpy()
        np.int64(3)
        """
        words = _words(self._state_var.read_value())[philox.COUNTER_WORDS :]
        if isinstance(words, jax.core.Tracer):
            return _pack(words) if _is_wide() else words
        return host_numbers.HostInt64(np.asarray(words).view(np.int64)[0])

    @property
    def algorithm(self) -> int:
        """The number of the algorithm.

        >>> Generator.from_seed(5).algorithm == Algorithm.PHILOX.value
        True
        """
        return self._alg

    def __repr__(self) -> str:
        return f"<Generator {Algorithm(self._alg).name}>"

    def _checkpoint_children(self) -> dict[str, Any]:
        """Returns the state by TensorFlow's name of it."""
        return {"_state_var": self._state_var}

    def reset(self, state: State) -> None:
        """Sets the state, in the form that the class describes.

        >>> generator = Generator.from_seed(1)
        >>> generator.reset([1, 2, 3])
        >>> generator.key.numpy()
        np.int64(3)
        """
        self._state_var.assign(_as_state(state))

    def reset_from_seed(self, seed: Seed) -> None:
        """Sets the state to the one for a seed.

        >>> generator = Generator.from_seed(1)
        >>> first = float(generator.normal([]))
        >>> generator.reset_from_seed(1)
        >>> float(generator.normal([])) == first
        True
        """
        self.reset(create_rng_state(seed, self._alg))

    def reset_from_key_counter(self, key: int, counter: Sequence[int]) -> None:
        """Sets the key and the counter.

        >>> generator = Generator.from_seed(1)
        >>> generator.reset_from_key_counter(7, [8, 9])
        >>> generator.key.numpy()
        np.int64(7)
        """
        self.reset(_join(key, counter))

    def skip(self, delta: int) -> jax.Array:
        """Changes the state as if `delta` numbers had been drawn.

        Args:
            delta: the number of random numbers to skip.

        Returns:
            The state before the change.

        >>> one, other = Generator.from_seed(1), Generator.from_seed(1)
        >>> _ = one.skip(3), other.normal([3])
        >>> float(one.normal([])) == float(other.normal([]))
        True
        """
        count = operator.index(delta)

        def move(variable: Variable) -> jax.Array:
            return assignment.draw(
                variable, lambda old: _pack(philox.advance(_words(old), count))
            )

        frame = ambient.current()
        if self._strategy is None or self._strategy is frame.strategy:
            if self._strategy is None or frame.mode == ambient.REPLICA:
                return move(self._state_var)
        elif frame.strategy is not None:
            raise errors.mixed_strategies_error(frame.strategy, self._strategy)
        # Across replicas all copies move on, and the numbers are those of the first.
        update = self._strategy.extended.update
        first: jax.Array = update(self._state_var, move, group=False)[0]
        return first

    def _take(self, shape: tuple[int, ...]) -> jax.Array:
        """Moves on by the numbers of a shape, and returns the words to draw them of."""
        words = _words(self.skip(math.prod(shape)))
        frame = ambient.current()
        if self._strategy is None or frame.mode != ambient.REPLICA:
            return words
        if frame.strategy is not self._strategy:
            return words
        # The counters of all replicas move alike, so each needs a key of its own.
        number = ambient.replica().replica_id_in_sync_group
        return philox.fold_in_replica(words, number)

    def normal(
        self,
        shape: Sequence[int],
        mean: ArrayLike = 0.0,
        stddev: ArrayLike = 1.0,
        dtype: DTypeLike = jnp.float32,
        name: str | None = None,
    ) -> jax.Array:
        """Returns random numbers from a normal distribution.

        Args:
            shape: the shape of the result.
            mean: the mean.
            stddev: the standard deviation.
            dtype: a floating-point dtype.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `dtype` is not a floating-point dtype.

        >>> Generator.from_seed(1234).normal([2]).round(3).tolist()
        [0.936..., 1.085...]
        """
        kind, wanted = _float_type(dtype), _shape(shape)
        found: jax.Array = philox.normal(self._take(wanted), wanted, kind)
        return found * jnp.asarray(stddev, kind) + jnp.asarray(mean, kind)

    def truncated_normal(
        self,
        shape: Sequence[int],
        mean: ArrayLike = 0.0,
        stddev: ArrayLike = 1.0,
        dtype: DTypeLike = jnp.float32,
        name: str | None = None,
    ) -> jax.Array:
        """Returns normally distributed numbers within two standard deviations.

        Args:
            shape: the shape of the result.
            mean: the mean.
            stddev: the standard deviation of the distribution before truncation.
            dtype: a floating-point dtype.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `dtype` is not a floating-point dtype.

        >>> bool(abs(Generator.from_seed(1).truncated_normal([1000])).max() < 2)
        True
        """
        kind, wanted = _float_type(dtype), _shape(shape)
        found: jax.Array = philox.truncated_normal(self._take(wanted), wanted, kind)
        return found * jnp.asarray(stddev, kind) + jnp.asarray(mean, kind)

    def uniform(
        self,
        shape: Sequence[int],
        minval: ArrayLike | None = 0,
        maxval: ArrayLike | None = None,
        dtype: DTypeLike = jnp.float32,
        name: str | None = None,
    ) -> jax.Array:
        """Returns random numbers from a uniform distribution.

        Args:
            shape: the shape of the result.
            minval: the lower end of the range, inclusive. For integers, if this and
                `maxval` are None, the range is all integers of `dtype`.
            maxval: the upper end of the range, exclusive; 1 by default for floats.
            dtype: a floating-point dtype, or a 32-bit or 64-bit integer dtype.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: `minval` is not less than `maxval`, for integers.
            TypeError: `dtype` is not one of these dtypes.
            ValueError: only one end of a range of integers is given.

        >>> Generator.from_seed(1).uniform([4], 1, 7, dtype=np.int32).tolist()
        [5, 4, 4, 2]
        """
        if not np.issubdtype(np.dtype(dtype), np.integer):
            kind, wanted = _float_type(dtype), _shape(shape)
            low = jnp.asarray(0 if minval is None else minval, kind)
            high = jnp.asarray(1 if maxval is None else maxval, kind)
            part: jax.Array = philox.uniform(self._take(wanted), wanted, kind)
            return part * (high - low) + low
        if (minval is None) != (maxval is None):
            raise ValueError(
                f"For integer dtype {np.dtype(dtype)}, minval and maxval must be both "
                f"`None` or both non-`None`; got minval={minval} and maxval={maxval}"
            )
        if minval is None or maxval is None:
            return self.uniform_full_int(shape, dtype)
        kind, wanted = _integer_type(dtype), _shape(shape)
        _check_range(minval, maxval)
        words = self._take(wanted)
        return philox.integers(words, wanted, kind, minval, maxval)

    def uniform_full_int(
        self,
        shape: Sequence[int],
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> jax.Array:
        """Returns random integers from the whole range of a dtype.

        Args:
            shape: the shape of the result.
            dtype: a 32-bit or 64-bit integer dtype; by default uint64, or uint32
                without JAX's 64-bit types.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `dtype` is not one of these dtypes.

        >>> Generator.from_seed(1).uniform_full_int([2], np.uint32).dtype
        dtype('uint32')
        """
        if dtype is None:
            dtype = jax.dtypes.canonicalize_dtype(np.uint64)
        kind, wanted = _integer_type(dtype), _shape(shape)
        return philox.full_integers(self._take(wanted), wanted, kind)

    def _keys(self, count: int) -> jax.Array:
        """Returns keys for new generators, as two words each."""
        return philox.words(self._take((count,)), (count,), 2)

    def make_seeds(self, count: int = 1) -> jax.Array:
        """Returns pairs of seeds, as an int64 array of shape (2, count).

        Without JAX's 64-bit types, the seeds are int32, the halves of TensorFlow's
        seeds. In functions of datasets, which use NumPy, they are always int64.

        >>> Generator.from_seed(1).make_seeds(3).shape
        (2, 3)
        """
        keys = self._keys(operator.index(count))
        if _is_wide():
            first = jax.lax.bitcast_convert_type(keys, jnp.int64)
            return jnp.stack([first, jnp.zeros_like(first)])
        if ambient.is_in_dataset() and jax_traces.is_clean():
            seeds = np.zeros((2, len(keys)), np.int64)
            seeds[0] = np.asarray(keys).view(np.int64)[:, 0]
            found: jax.Array = elements.present(seeds)
            return found
        return jax.lax.bitcast_convert_type(keys.T, jnp.int32)

    def split(self, count: int = 1) -> list[Generator]:
        """Returns generators that are independent of this one.

        >>> a, b = Generator.from_seed(1).split(2)
        >>> float(a.normal([])) == float(b.normal([]))
        False
        """
        counter = jnp.zeros(philox.COUNTER_WORDS, jnp.uint32)
        return [
            Generator(state=jnp.concatenate([counter, key]), alg=self._alg)
            for key in self._keys(operator.index(count))
        ]


def _require(is_given: bool, what: str) -> None:
    if not is_given:
        raise AssertionError(
            f"A Generator needs {what}; Generator.from_seed(seed) makes one of a seed."
        )


# A state has six words of 32 bits; where JAX has 64-bit types, it is three int64.


def _is_wide() -> bool:
    return bool(jax.dtypes.canonicalize_dtype(np.int64) == np.int64)


def _words(state: ArrayLike) -> jax.Array:
    given = jnp.asarray(state)
    if given.dtype == jnp.uint32:
        return given
    return jax.lax.bitcast_convert_type(given, jnp.uint32).reshape(-1)


def _pack(words: jax.Array) -> jax.Array:
    if not _is_wide():
        return words
    return jax.lax.bitcast_convert_type(words.reshape(-1, 2), jnp.int64)


def _as_state(given: object) -> jax.Array:
    """Returns a state that a program gives, in the form that is stored.

    Raises:
        ValueError: it has another size.
    """
    if isinstance(given, Variable):
        given = given.read_value()
    if isinstance(given, jax.Array) and given.dtype == jnp.uint32:
        _check_size(given.shape)
        return _pack(given)
    if isinstance(given, jax.core.Tracer):
        _check_size(given.shape)
        low = given.astype(jnp.uint32)
        # A program without 64-bit types has narrower numbers; the sign fills the rest.
        high = jnp.where(given < 0, np.uint32(0xFFFFFFFF), np.uint32(0))
        wide = given.dtype in (jnp.int64, jnp.uint64)
        return _pack(_words(given) if wide else jnp.stack([low, high], -1).ravel())
    array = np.asarray(given)
    if array.dtype != np.uint32 or array.shape != (philox.WORDS,):
        numbers = [int(x) & _MASK for x in np.ravel(np.asarray(given, object))]
        _check_size((*array.shape[:-1], len(numbers)))
        array = np.array(numbers, np.uint64).view(np.uint32)
    return _pack(jnp.asarray(array))


def _check_size(shape: tuple[int, ...]) -> None:
    if shape not in ((3,), (philox.WORDS,)):
        raise ValueError(
            f"Shapes {shape} and [3] are incompatible: the state of a generator has "
            "three numbers of 64 bits."
        )


def _join(key: int, counter: Sequence[int]) -> list[int]:
    """Returns the state of a key and a counter."""
    words = [int(x) for x in np.ravel(np.asarray(counter, object))]
    if np.ndim(counter) != 1 or len(words) != 2 or np.ndim(key) != 0:
        raise ValueError(
            f"Shapes {np.shape(counter)} and [2] are incompatible: a counter has two "
            f"numbers and a key is one; received {counter!r} and {key!r}."
        )
    return [*words, int(key)]


def _shape(shape: Iterable[SupportsIndex]) -> tuple[int, ...]:
    return tuple(operator.index(n) for n in shape)


_FLOATS = (jnp.bfloat16, np.float16, np.float32, np.float64)
_INTEGERS = (np.int32, np.uint32, np.int64, np.uint64)


def _check_type(dtype: DTypeLike, known: Sequence[Any], what: str) -> np.dtype[Any]:
    if np.dtype(dtype) not in map(np.dtype, known):
        raise TypeError(f"Expected a type of {what}, received {np.dtype(dtype)}.")
    found: np.dtype[Any] = np.dtype(jax_types.usable_type(np.dtype(dtype)))
    return found


_float_type = functools.partial(_check_type, known=_FLOATS, what="floats")
_integer_type = functools.partial(
    _check_type, known=_INTEGERS, what="integers of 32 or 64 bits"
)


def _check_range(low: object, high: object) -> None:
    if isinstance(low, jax.core.Tracer) or isinstance(high, jax.core.Tracer):
        return
    if np.any(np.asarray(low) >= np.asarray(high)):
        raise errors.InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")


_global: list[Generator] = []
_global_lock = threading.Lock()


def get_global_generator() -> Generator:
    """Returns the global generator, which is created on first use.

    >>> get_global_generator() is get_global_generator()
    True
    """
    if not _global:
        # Whatever scope or program asks first, the generator belongs to neither.
        with ambient.enter(ambient.ROOT), jax_traces.compute_at_once():
            made = Generator.from_non_deterministic_state()
        with _global_lock:
            # Another thread may have made one meanwhile; all must draw from the same.
            _global[:] = _global or [made]
    return _global[0]


def set_global_generator(generator: Generator) -> None:
    """Sets the global generator.

    Args:
        generator: the new generator. As in TensorFlow, a compiled function keeps the
            generator with which it was traced.

    Raises:
        TypeError: `generator` is not a `Generator`.

    >>> set_global_generator(Generator.from_seed(3))
    >>> get_global_generator().state.numpy()[0]
    np.uint32(3)
    """
    if not isinstance(generator, Generator):
        raise TypeError(f"Expected a unisono.random.Generator, received {generator!r}.")
    _global[:] = [generator]
