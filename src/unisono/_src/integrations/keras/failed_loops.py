"""The weights of a model after a loop of Keras that has failed.

Keras takes the values out of a model's variables while `fit`, `evaluate` or `predict`
runs, and leaves them empty if the loop raises. Models that were made in a scope are
looked after in `training`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax

from unisono._src.integrations.keras import adoption, internals
from unisono._src.integrations.keras.internals import KerasModel, KerasVariable

LOOPS = ("fit", "evaluate", "predict")
_State = Sequence[Sequence[jax.Array]]


def state_variables(model: KerasModel, part: str) -> Sequence[KerasVariable]:
    """Return the variables whose values a part of the state of a loop has."""
    found: Sequence[KerasVariable]
    if part == "optimizer_variables":
        found = [] if model.optimizer is None else model.optimizer.variables
    else:
        found = getattr(model, part)
    return found


def wrap_get_state(original: Callable[..., _State]) -> Callable[..., _State]:
    """Return a `_get_jax_state` that notes the values that it takes out.

    Keras stores what is noted when the loop ends. Without the note that would be the
    state of an earlier loop if this one takes no step.
    """

    @functools.wraps(original)
    def get_state(
        self: KerasModel, *, purge_model_variables: bool = False, **parts: bool
    ) -> _State:
        state = original(self, purge_model_variables=purge_model_variables, **parts)
        if purge_model_variables:
            wanted = [name for name, is_wanted in parts.items() if is_wanted]
            internals.set_loop_state(self, dict(zip(wanted, state, strict=True)))
        return state

    return get_state


def wrap_loop(original: Callable[..., object]) -> Callable[..., object]:
    """Return a loop that puts the latest values back if it raises."""

    @functools.wraps(original)
    def loop(self: KerasModel, *args: object, **kwargs: object) -> object:
        try:
            return original(self, *args, **kwargs)
        except BaseException:  # `KeyboardInterrupt`, too.
            if adoption.STRATEGY not in self.__dict__:
                _give_back(self)
            raise

    return loop


def _give_back(model: KerasModel) -> None:
    """Store the values that the latest step has returned, or that were taken out."""
    latest = internals.loop_state(model)
    if not latest:
        return
    for part, values in latest.items():
        for variable, value in zip(state_variables(model, part), values, strict=False):
            # A step that has begun may have used the memory of what it was given.
            if internals.stored_value(variable) is None and not value.is_deleted():
                internals.store(variable, value)
    internals.give_weights_back(model)
