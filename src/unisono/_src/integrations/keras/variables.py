"""Keras variables whose values are kept in variables of a strategy.

When Keras gives a variable its first value, it asks the current distribution for a
layout. There a variable made in a scope becomes a `StrategyVariable`: the same object
with the same attributes, whose value is in a `unisono.Variable`, named `_kept`. So
layers, optimizers, metrics and seed generators read and write through the current state
frame, as everything does that a strategy runs. See docs/decisions/0014.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.typing import ArrayLike

from unisono._src.execution import late_values, partitioned_weights
from unisono._src.foundation import ambient, errors
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.integrations import kept_variables
from unisono._src.integrations.keras import internals, strategy_distribution
from unisono._src.integrations.keras.internals import KerasVariable
from unisono._src.state import (
    assignment,
    frames,
    mirroring,
    reading,
    storage,
    variables,
)
from unisono._src.state.storage import Policy
from unisono._src.strategies.base import Strategy
from unisono._src.values import array_operators, collectives, jax_traces, part_exchange

_AGGREGATIONS = {
    "none": VariableAggregation.NONE,
    "sum": VariableAggregation.SUM,
    "mean": VariableAggregation.MEAN,
    "only_first_replica": VariableAggregation.ONLY_FIRST_REPLICA,
}
_SYNCHRONIZATIONS = {
    "auto": VariableSynchronization.AUTO,
    "none": VariableSynchronization.NONE,
    "on_write": VariableSynchronization.ON_WRITE,
    "on_read": VariableSynchronization.ON_READ,
}


@final
class StrategyVariable(keras.Variable):
    """A Keras variable that was made in the scope of a strategy."""

    # Lower layers ask for this attribute to recognize a variable of a strategy.
    @property
    def _unisono_variable(self) -> variables.Variable:
        found = self.__dict__.get("_kept")
        if found is None:
            raise AttributeError(
                f"The variable {self.path} has no value yet. Build its layer or "
                "optimizer first."
            )
        return found

    @property
    def distribute_strategy(self) -> Strategy | None:
        """The strategy in whose scope the variable was made."""
        return self._unisono_variable.distribute_strategy

    @property
    def value(self) -> jax.Array:
        """The value as the running context sees it."""
        kept = self.__dict__.get("_kept")
        if kept is None:
            return super().value
        if internals.in_stateless_scope():
            given = internals.get_stateless_scope().get_current_value(self)
            if given is not None:
                return self._maybe_autocast(_gather(self, kept, given))
        return self._maybe_autocast(_read(self, kept))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        kept = self.__dict__.get("_kept")
        if kept is None or not _is_handed_over_apart(kept):
            return super().__array__(dtype)
        # A callback of `fit` reads the numbers, as on all workers.
        cell = kept.state_cell
        array = _hand_over(self, kept)
        parts = part_exchange.gather(array, cell.split, cell.topology, cell.name)
        return np.concatenate(parts, cell.split.axis).astype(dtype or cell.dtype)

    def __repr__(self) -> str:
        kept = self.__dict__.get("_kept")
        if kept is None or not reading.has_part(kept):
            return super().__repr__()
        return (
            f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype}, "
            f"{reading.name_part(kept)}, value={np.asarray(kept.local_part)}>"
        )

    # Keras reads and writes `_value`; it is None before the first value.

    @property
    def _value(self) -> jax.Array | jax.ShapeDtypeStruct | None:
        kept = self.__dict__.get("_kept")
        if kept is not None and "_is_new" in self.__dict__:
            # Keras asks for shape and type right after the first value. A read would
            # make the value an input of the program that is being traced.
            return jax.ShapeDtypeStruct(kept.shape, kept.dtype)
        return None if kept is None else _read(self, kept)

    @_value.setter
    def _value(self, value: jax.Array | None) -> None:
        if value is not None:
            self._direct_assign(value)
        elif "_kept" in self.__dict__:
            self._set_aside()

    # The initializer itself is passed on, not its value: a large variable is then
    # computed in parts, each on the device that keeps it.
    def _initialize_with_initializer(
        self, initializer: Callable[..., ArrayLike]
    ) -> None:
        if not _may_be_split():
            super()._initialize_with_initializer(initializer)
            return

        def initial() -> jax.Array:
            value = initializer(self._shape, dtype=self._dtype)
            return self._convert_to_tensor(value, dtype=self._dtype)

        self.__dict__["_kept"] = _make(self, initial)

    def _direct_assign(self, value: jax.Array) -> None:
        kept = self.__dict__.get("_kept")
        self.__dict__.pop("_aside", None)
        if kept is None:
            self.__dict__["_kept"] = _make(self, value)
        elif strategy_distribution.is_training():
            _store(self, kept, value)
        else:
            kept_variables.assign(kept, assignment.REPLACE, value)

    def assign_add(self, value: ArrayLike) -> jax.Array:
        """Add to the value, by the variable's synchronization and aggregation."""
        return self._change(assignment.ADD, value)

    def assign_sub(self, value: ArrayLike) -> jax.Array:
        """Subtract from the value, by the same rules as `assign_add`."""
        return self._change(assignment.SUB, value)

    def _change(self, op: str, value: ArrayLike) -> jax.Array:
        kept = self.__dict__.get("_kept")
        if kept is None or internals.in_stateless_scope():
            method = "assign_add" if op == assignment.ADD else "assign_sub"
            return getattr(super(), method)(value)
        value = jnp.broadcast_to(
            self._convert_to_tensor(value, dtype=self._dtype), self.shape
        )
        kept_variables.assign(kept, op, value)
        return self.value

    # While `fit` runs, Keras' loop has the arrays and donates them to every step. It
    # sets the variables to None meanwhile.

    def _set_aside(self) -> None:
        """Keep the array aside, in case no step ever takes it over."""
        cell = self._unisono_variable.state_cell
        if cell.array is not None:
            self.__dict__["_aside"], cell.array = cell.array, None

    def take_back(self) -> None:
        """Restore the array that was set aside, if the variable has no newer one."""
        aside = self.__dict__.pop("_aside", None)
        if aside is not None and self._unisono_variable.state_cell.array is None:
            self._unisono_variable.state_cell.array = aside

    def is_lost(self) -> bool:
        """Return whether the variable had a value that a step has taken over."""
        kept = self.__dict__.get("_kept")
        if kept is None or kept.state_cell.home is not None:
            return False
        return kept.state_cell.array is None or kept.state_cell.array.is_deleted()


def adopt(variable: KerasVariable) -> None:
    """Make a new Keras variable a `StrategyVariable` of the current strategy."""
    if type(variable) is keras.Variable:
        variable.__class__ = StrategyVariable


def convert(variable: KerasVariable) -> None:
    """Make a Keras variable that was made outside one of the current strategy.

    It stays the same object, and keeps its value.
    """
    own = variable.__dict__
    value = own.get("_value")
    if value is not None:
        with jax_traces.compute_at_once():
            # A copy: a step of Keras donates the array of the variable, and somebody
            # may have read the old one.
            value = jnp.copy(value)
        kept = _make(variable, value)
    variable.__class__ = StrategyVariable
    own.pop("_value", None)
    own["_layout"] = None
    if value is not None:
        own["_kept"] = kept
        if kept.state_cell.is_stacked:
            # `Variable` gives every replica the whole value, whose sum is another.
            with jax_traces.compute_at_once():
                _store(variable, kept, value)


def _may_be_split() -> bool:
    """Return whether the current strategy may split a new variable over devices."""
    placement = ambient.current().placement
    return placement is not None and placement.plan is not None


def _make(
    variable: KerasVariable, value: jax.Array | Callable[[], jax.Array]
) -> variables.Variable:
    """Return a new variable of the strategy with the options of a Keras variable."""
    synchronization = _SYNCHRONIZATIONS[variable.synchronization]
    aggregation = _AGGREGATIONS[variable.aggregation]
    if aggregation is VariableAggregation.NONE and not variable.trainable:
        aggregation = kept_variables.aggregation_of_state(jnp.dtype(variable.dtype))
    made = kept_variables.make(
        value,
        trainable=variable.trainable,
        name=variable.path,
        synchronization=synchronization,
        aggregation=aggregation,
    )
    # Gradient tapes tell which variables they follow.
    array_operators.set_library_variable(made, variable)
    return made


def wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of Keras variables whose initializer computes at once."""

    @functools.wraps(original)
    def init(self: KerasVariable, *args: object, **kwargs: object) -> None:
        frame, found = ambient.current(), strategy_distribution.current()
        if (
            frame.tape is None
            and frame.state is None
            and not (frame.strategy or frame.placement or found)
        ):
            # The scope or the tape that is open is another thread's.
            original(self, *args, **kwargs)
            return
        in_scope = frame.placement is not None
        if in_scope:
            strategy_distribution.check_alone()
        if _may_be_split() or (in_scope and found is None):
            # Usually the distribution adopts a variable when it gets its value. That
            # is too late for one that is created in parts; and after `clear_session`
            # Keras has no distribution any more.
            adopt(self)
        # A body that JAX traces by itself, such as that of `jax.checkpoint`, has no
        # frame. A value that is made in its trace would not outlive it.
        if jax_traces.is_clean() or internals.in_stateless_scope():
            original(self, *args, **kwargs)
            return
        self.__dict__["_is_new"] = True
        try:
            with jax_traces.compute_at_once():
                original(self, *args, **kwargs)
        finally:
            del self.__dict__["_is_new"]

    return init


# Reading.


def _read(variable: StrategyVariable, kept: variables.Variable) -> jax.Array:
    """Return the value as the running context sees it."""
    frame = ambient.current()
    if frame.state is not None or frame.tape is not None:
        return reading.read(kept)
    is_training = strategy_distribution.is_training()
    is_keras = is_training or internals.in_stateless_scope()
    cell = kept.state_cell
    has_value = cell.array is not None or cell.home is not None
    if is_keras and not jax_traces.is_clean() and has_value:
        # Keras traces the code, to find shapes or to compile it, and passes the values
        # of variables itself. What is read here is not used for its numbers.
        return frames.peek(cell)
    return _hand_over(variable, kept) if is_training else reading.read(kept)


def _is_handed_over_apart(kept: variables.Variable) -> bool:
    """Whether a loop of Keras takes a variable whose parts other workers have."""
    is_apart = kept.state_cell.is_apart and jax_traces.is_clean()
    return is_apart and strategy_distribution.is_training()


def _gather(
    variable: StrategyVariable, kept: variables.Variable, given: jax.Array
) -> jax.Array:
    """Return the whole value of a split weight in a step of Keras.

    With a split weight the compiler would split what is computed from it too. Slots of
    optimizers are not gathered, they stay split, and so does what they update. See
    docs/decisions/0017 and 0038.
    """
    cell = kept.state_cell
    is_whole = cell.split is None or given.shape != cell.shape
    if is_whole or not variable.trainable or not strategy_distribution.is_training():
        return given
    if strategy_distribution.gathers_late() and cell.split.is_over_replicas:
        if strategy_distribution.is_updating():
            return given
        source = late_values.SplitInput(
            cell.name, cell.split, cell.shape, cell.topology
        )
        return partitioned_weights.gather(given, source)
    return jax.lax.with_sharding_constraint(given, cell.topology.replicated_sharding)


def _hand_over(variable: StrategyVariable, kept: variables.Variable) -> jax.Array:
    """Return the whole value on all devices, for a step of Keras that may donate it."""
    cell = kept.state_cell
    if cell.home is not None:
        return reading.read(kept)  # A copy, which a parameter server has sent.
    # Under the lock, so that no other thread, such as one that saves, gets hold of the
    # array after `unescape` has made sure that nobody else has it.
    with storage.LOCK:
        if cell.array is None:
            aside = variable.__dict__.get("_aside")
            if aside is None or aside.is_deleted():
                raise errors.FailedPreconditionError(
                    f"The variable '{cell.name}' is being updated by a running step. "
                    "Call model.jax_state_sync() before reading it in a callback."
                )
            return aside
        if variable.is_lost():
            return reading.read(kept)  # This raises, and says what is lost.
        if cell.policy is Policy.ON_READ and cell.copies > 1:
            # Before `unescape`, which may replace the array that `_store` has stored.
            return _combine(variable, kept)
        # An array that somebody else has read is copied, so that donating ours leaves
        # theirs as it is.
        mirroring.unescape([cell])
        if cell.policy is Policy.CENTRAL:
            return jax.device_put(cell.array, cell.topology.replicated_sharding)
        return cell.array


def _combine(variable: StrategyVariable, kept: variables.Variable) -> jax.Array:
    """Return the sum or mean of the replicas' copies.

    Reading is a collective of all workers. It is left out as long as the value is the
    one that `_store` has stored, which every worker knows.
    """
    cell = kept.state_cell
    stored, whole = variable.__dict__.get("_stored", (None, None))
    if stored is cell.array and not whole.is_deleted():
        return whole
    return cell.topology.spread(reading.read(kept))


# Writing.


def _store(variable: KerasVariable, kept: variables.Variable, value: jax.Array) -> None:
    """Store the whole value that a step of Keras has returned."""
    cell = kept.state_cell
    if cell.is_stacked and cell.is_spread:
        if getattr(value, "is_fully_addressable", True):
            value = jnp.array(value, cell.dtype)  # A copy, which a step may donate.
        whole = cell.topology.spread(value)
        cell.store(_split_into_rows(kept, whole), is_fresh=True)
        # Until the cell has another array, `_combine` returns this value.
        variable.__dict__["_stored"] = (cell.array, whole)
        return
    if cell.is_stacked:
        value = _split_into_rows(kept, value)
    elif not strategy_distribution.is_syncing():
        # The array may also be that of another variable, whose next step donates it.
        value = jnp.copy(value)
    cell.store(value, is_fresh=True)


def _split_into_rows(kept: variables.Variable, value: jax.Array) -> jax.Array:
    """Return one row per replica whose sum or mean is `value`.

    For a sum the first row has all and the others zero, so that it comes out exactly.
    """
    cell = kept.state_cell
    whole = collectives.own_copy(value)
    if not cell.is_spread:
        whole = collectives.place(whole, cell.topology.devices[0])
    whole = jnp.asarray(whole, cell.dtype)
    if kept.aggregation is not VariableAggregation.SUM:
        return jnp.broadcast_to(whole, cell.stored_shape)
    return jnp.zeros(cell.stored_shape, cell.dtype).at[0].set(whole)
