"""Steps of Keras' own training loop, in which others take part.

Who compares runs of a program sees the calls of compiled functions. A step of `fit` in
Keras' own way is none: its state is in arguments, not in variables. While somebody
observes, each batch is such a call. Before it the variables have their values, and
after it the new ones; the gradients are written where those of optimizers are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from unisono._src.execution import call_modes
from unisono._src.integrations.keras import (
    internals,
    strategy_distribution,
    variables,
)
from unisono._src.integrations.keras.internals import KerasModel, KerasVariable
from unisono._src.training import gradient_taps
from unisono._src.values import array_operators

_State = Sequence[Sequence[jax.Array]]


def make_observed(model: KerasModel, make: Callable[[], object]) -> None:
    """Have a model make a training function whose batches are calls for observers.

    Args:
        model: the model.
        make: makes its `train_function` of its `train_step`.
    """
    own = model.__dict__
    own["train_step"] = functools.partial(_show_gradients, model)
    try:
        make()
    finally:
        del own["train_step"]
    model.train_function = functools.partial(_execute, model, model.train_function)


def _show_gradients(model: KerasModel, state: _State, data: object) -> Any:
    """Take a step, and return its gradients beside its logs."""
    shown: list[jax.Array | None] = []
    optimizer: Any = model.optimizer
    apply = optimizer.stateless_apply

    def note(slots: Any, gradients: Any, values: Any) -> Any:
        shown.extend(gradients)
        return apply(slots, gradients, values)

    optimizer.__dict__["stateless_apply"] = note
    try:
        kind: Any = type(model)
        logs, new = kind.train_step(model, state, data)
    finally:
        del optimizer.__dict__["stateless_apply"]
    return (logs, shown), new


def _execute(
    model: KerasModel, function: Any, state: _State, iterator: Iterator[Any]
) -> tuple[Any, _State]:
    """Take the steps that Keras' loop asks for, each as a call of its own."""
    observer = call_modes.Observers.current
    take = functools.partial(_take_step, model, function)
    logs = None
    for batch in itertools.islice(iterator, model.steps_per_execution or 1):
        for variable in _variables_of(model):
            if isinstance(variable, variables.StrategyVariable):
                variable.take_back()
        logs = take((batch,), {}) if observer is None else observer((batch,), {}, take)
    if logs is None:
        raise StopIteration  # Keras' loop ends the epoch.
    return logs, state


def _take_step(model: KerasModel, function: Any, args: Any, kwargs: Any) -> Any:
    """Take one step with the values of the variables, and store the new ones."""
    (batch,) = args
    found: Any = strategy_distribution.current()
    source = iter([batch])
    state = internals.copy_loop_state(model)
    (logs, gradients), new = function(
        state, source if found is None else found.batches(source)
    )
    internals.store_loop_state(model, new)
    find = array_operators.find_own_variable
    slots = [find(v) for v in getattr(model.optimizer, "variables", ())]
    wanted = [find(v) for v in model.trainable_variables]
    gradient_taps.note(gradients, wanted, slots)
    return logs


def _variables_of(model: KerasModel) -> list[KerasVariable]:
    optimizer = model.optimizer
    slots = [] if optimizer is None else optimizer.variables
    metrics = [v for metric in model.metrics for v in metric.variables]
    return [*model.variables, *slots, *metrics]
