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

# Under this name a model has, while a loop runs, its variables and their first values.
_TAKEN = "_unisono_taken"
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
    """Return a `_get_jax_state` that notes the values that it takes out."""

    @functools.wraps(original)
    def get_state(
        self: KerasModel, *, purge_model_variables: bool = False, **parts: bool
    ) -> _State:
        state = original(self, purge_model_variables=purge_model_variables, **parts)
        if purge_model_variables:
            # An earlier loop, or `train_on_batch`, may have left its own state, which
            # Keras would store in the variables if this loop fails.
            internals.set_loop_state(self, None)
        if purge_model_variables and adoption.STRATEGY not in self.__dict__:
            wanted = [name for name, is_wanted in parts.items() if is_wanted]
            owners = [state_variables(self, name) for name in wanted]
            # A model whose steps run on replicas has lists of nothing.
            self.__dict__[_TAKEN] = [
                pair
                for variables, values in zip(owners, state, strict=True)
                for pair in zip(variables, values, strict=False)
            ]
        return state

    return get_state


def wrap_loop(original: Callable[..., object]) -> Callable[..., object]:
    """Return a loop that puts the latest values back if it raises."""

    @functools.wraps(original)
    def loop(self: KerasModel, *args: object, **kwargs: object) -> object:
        try:
            return original(self, *args, **kwargs)
        except BaseException:  # `KeyboardInterrupt`, too.
            if _TAKEN in self.__dict__:
                _give_back(self, self.__dict__[_TAKEN])
            raise
        finally:
            self.__dict__.pop(_TAKEN, None)

    return loop


def _give_back(
    model: KerasModel, taken: Sequence[tuple[KerasVariable, jax.Array]]
) -> None:
    """Store the values of the latest step that has ended, or else the first ones."""
    latest = internals.loop_state(model) or {}
    # A step that has begun may have used the memory of what it was given.
    if not any(x.is_deleted() for part in latest.values() for x in part):
        model.jax_state_sync()
    for variable, value in taken:
        if internals.stored_value(variable) is None and not value.is_deleted():
            internals.store(variable, value)
    internals.give_weights_back(model)
