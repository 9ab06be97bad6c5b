"""`ExponentialMovingAverage`: averages of variables over the steps of a training."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import final

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from unisono._src.foundation import ambient
from unisono._src.state.variables import SyncOnReadVariable, Variable
from unisono._src.strategies import current
from unisono._src.strategies.base import Strategy
from unisono._src.values import distributed
from unisono._src.values.array_operators import operand


@final
class ExponentialMovingAverage:
    """Keeps a moving average of each variable, in a variable of its own.

    The first `apply` creates the averages, with the current values of the variables.
    Each `apply` updates them: ``average -= (1 - decay) * (average - variable)``.

    Args:
        decay: the share of the average that is kept, such as 0.999: a number or a
            variable.
        num_updates: a number or a variable that counts the steps. If it is given, the
            decay is at most ``(1 + num_updates) / (10 + num_updates)``.
        zero_debias: accepted and ignored; in TensorFlow it affects only averages of
            tensors in graphs.
        name: the last part of the names of the averages.

    >>> import unisono
    >>> weight = unisono.Variable(1.0)
    >>> ema = ExponentialMovingAverage(decay=0.5)
    >>> ema.apply([weight])
    >>> _ = weight.assign(3.0)
    >>> ema.apply([weight])
    >>> float(ema.average(weight).numpy())
    2.0
    """

    def __init__(
        self,
        decay: ArrayLike | Variable,
        num_updates: ArrayLike | Variable | None = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay, self._num_updates = decay, num_updates
        self._zero_debias, self._name = zero_debias, name
        # By identity, with the variable itself: variables have no hash.
        self._averages: dict[int, tuple[Variable, Variable]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} decay={self._decay} of {len(self._averages)}>"

    @property
    def name(self) -> str:
        """The last part of the names of the averages.

        >>> ExponentialMovingAverage(0.9).name
        'ExponentialMovingAverage'
        """
        return self._name

    def apply(self, var_list: Sequence[Variable]) -> None:
        """Updates the averages of variables, and creates those that do not exist yet.

        In replica context, all replicas must call it; the averages are updated once. If
        a variable has ON_READ synchronization, its average moves toward the mean of its
        copies.

        Args:
            var_list: variables with a floating-point dtype.

        Raises:
            TypeError: an item in the list is not a variable, or has another dtype.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> ema = ExponentialMovingAverage(decay=0.9)
        >>> with strategy.scope():
        ...     weight = unisono.Variable(1.0)
        ...     ema.apply([weight])
        >>> _ = weight.assign(2.0)
        >>> strategy.run(unisono.function(lambda: ema.apply([weight])))
        >>> round(float(ema.average(weight).numpy()), 6)
        1.1
        """
        given = [_check(v) for v in var_list]
        frame = ambient.current()
        if frame.strategy is not None and frame.mode == ambient.REPLICA:
            ambient.replica().merge_call(lambda _: self._move(given))
        else:
            self._move(given)

    def average(self, var: Variable) -> Variable | None:
        """Returns the variable with the average of `var`, or None.

        >>> import unisono
        >>> ExponentialMovingAverage(0.9).average(unisono.Variable(1.0)) is None
        True
        """
        found = self._averages.get(id(_distributed_variable(var)))
        return None if found is None else found[1]

    def average_name(self, var: Variable) -> str:
        """Returns the name of the average of `var`, even if it does not exist yet.

        >>> import unisono
        >>> ExponentialMovingAverage(0.9).average_name(unisono.Variable(1.0, name="w"))
        'w/ExponentialMovingAverage'
        """
        whole = _distributed_variable(var)
        average = self.average(whole)
        if average is not None:
            return average.name.removesuffix(":0")
        return f"{whole.name.removesuffix(':0')}/{self._name}"

    def _checkpoint_children(self) -> dict[str, Variable]:
        """Returns the averages by their names."""
        return {self.average_name(v): average for v, average in self._averages.values()}

    def _move(self, variables: Sequence[Variable]) -> None:
        """Moves the averages, in cross-replica context."""
        for variable in variables:
            if id(variable) not in self._averages:
                self._averages[id(variable)] = variable, self._make(variable)
        decay = jnp.asarray(operand(self._decay), jnp.float32)
        if self._num_updates is not None:
            updates = jnp.asarray(operand(self._num_updates), jnp.float32)
            # TensorFlow's formula: the average moves faster while it is young.
            decay = jnp.minimum(decay, (1.0 + updates) / (10.0 + updates))
        for variable in variables:
            average = self._averages[id(variable)][1]
            part = (1.0 - decay).astype(average.dtype)
            strategy = _strategy_of(average)
            strategy.extended.update(average, _approach, (_value(variable), part))

    def _make(self, variable: Variable) -> Variable:
        """Returns a new average, where the variable is."""
        strategy = _strategy_of(variable)
        is_here = ambient.current().strategy is variable.distribute_strategy
        with contextlib.nullcontext() if is_here else strategy.scope():
            return Variable(
                _value(variable), trainable=False, name=self.average_name(variable)
            )


def _distributed_variable(variable: Variable) -> Variable:
    """Returns the distributed variable of a copy, and another variable as it is."""
    container = distributed.container_of(variable)
    return container if isinstance(container, Variable) else variable


def _check(variable: object) -> Variable:
    """Returns a variable whose average can be kept.

    Raises:
        TypeError: it is another thing.
    """
    if not isinstance(variable, Variable):
        raise TypeError(
            "unisono.train.ExponentialMovingAverage does not support non-Variable "
            f"tensors; received {type(variable).__name__}. Pass unisono.Variable "
            "objects."
        )
    if not jnp.issubdtype(variable.dtype, jnp.floating):
        raise TypeError(
            f"The variables must be half, float, or double: {variable.name}"
        )
    return _distributed_variable(variable)


def _strategy_of(variable: Variable) -> Strategy:
    owner: Strategy | None = variable.distribute_strategy
    return owner or current.get_strategy()


def _value(variable: Variable) -> jax.Array:
    """Returns the value to average, which is the mean of copies that may differ."""
    if isinstance(variable, SyncOnReadVariable):
        mean: jax.Array = variable.distribute_strategy.reduce("MEAN", variable, None)
        return mean
    return variable.read_value()


def _approach(average: Variable, value: jax.Array, part: jax.Array) -> None:
    average.assign_sub((average - value) * part)
