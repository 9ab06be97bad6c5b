"""Brings variables that a model gets outside the scope into its strategy.

A model that was made in a scope may get a new optimizer, metrics or weights outside:
`compile`, `build`, `quantize` and `enable_lora` are often called there. Their variables
are Keras' plain ones. At the next call into the model they become variables of its
strategy: the same objects with the same values. A layer or model that had its variables
before the scope-made model got hold of it is not touched, unless the program gives it
to `strategy.adopt`. See docs/decisions/0014.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, final

import jax
import keras

from unisono._src.foundation import ambient, errors
from unisono._src.integrations import kept_variables
from unisono._src.integrations.keras import internals, variables
from unisono._src.integrations.keras.internals import KerasModel, KerasVariable
from unisono._src.state import frames
from unisono._src.strategies import call_context, current
from unisono._src.strategies.base import Strategy

# Under these names a model has its strategy, and the variables that it had found made
# outside when the scope ended in which it was made.
STRATEGY = "distribute_strategy"
_EXCLUDED = "_unisono_excluded_variables"
_TRAINING = (internals.BaseOptimizer, keras.metrics.Metric)
_KINDS = (keras.Layer, *_TRAINING, keras.random.SeedGenerator, keras.Variable)


@final
class _ExcludedVariables:
    """Variables that a model must not bring in by itself.

    An object of its own, because Keras and checkpoints look into containers.
    """

    def __init__(self, found: Iterable[KerasVariable]) -> None:
        self._found = list(found)

    def __contains__(self, variable: object) -> bool:
        # By identity: `==` of Keras variables compares their values.
        return any(v is variable for v in self._found)


@final
class _ModelsOfScope(ambient.PerThread):
    """The models that were made in the scope that is open in this thread."""

    models: tuple[weakref.ref[KerasModel], ...] = ()


_models_of_scope = _ModelsOfScope()
# All models that have a strategy.
_members: weakref.WeakSet[KerasModel] = weakref.WeakSet()


# What an object consists of.


def is_plain(variable: object) -> bool:
    """Return whether a variable is one of Keras, kept by no strategy."""
    return type(variable) is keras.Variable


def _find_variables(obj: Any) -> list[KerasVariable]:
    """Return the variables that an object of Keras reaches, each once."""
    if isinstance(obj, keras.Variable):
        found = [obj]
    elif isinstance(obj, keras.random.SeedGenerator):
        found = [obj.state]
    elif isinstance(obj, keras.Model):
        found = [*obj.variables, *_find_training_variables(obj)]
    elif isinstance(obj, keras.Layer):
        found = [*obj.variables, *obj.metrics_variables]
    else:
        found = list(obj.variables)
    return list({id(v): v for v in found}.values())


def _find_training_variables(model: KerasModel) -> list[KerasVariable]:
    """Return the variables of a model's optimizer and metrics."""
    if not model.compiled:
        return []
    # A model of the program's own may have more optimizers than Keras knows.
    parts = [x for x in vars(model).values() if isinstance(x, _TRAINING)]
    parts += model.metrics
    given = keras.tree.flatten(internals.unlisted_metrics(model))
    parts += [m for m in given if isinstance(m, keras.metrics.Metric)]
    return [v for part in parts for v in part.variables]


def _find_models(obj: object) -> list[KerasModel]:
    """Return the models among the layers that an object reaches."""
    if not isinstance(obj, keras.Layer):
        return []
    found = internals.all_layers(obj)
    return [x for x in found if isinstance(x, internals.JAXTrainer)]


# A model and its strategy.


def enroll(model: KerasModel, strategy: Strategy) -> None:
    """Make a model a member of a strategy."""
    model.__dict__[STRATEGY] = strategy
    _members.add(model)


def note_new_model(model: KerasModel) -> None:
    """Remember that a model is being made in the scope that is open in this thread."""
    _models_of_scope.models += (weakref.ref(model),)


def note_outside_variables() -> None:
    """Note the variables of the scope's models that were made outside, as it ends.

    What is not in the strategy by now was made before the model, by someone else. What
    a model gets from now on is its own.
    """
    waiting, _models_of_scope.models = _models_of_scope.models, ()
    for reference in waiting:
        model = reference()
        # A model whose construction has failed has no layers.
        if model is not None and internals.has_layers(model):
            _note_excluded(model)


def _note_excluded(model: KerasModel) -> _ExcludedVariables:
    """Note the variables of a model that are in no strategy, and return them."""
    found = model.__dict__[_EXCLUDED] = _ExcludedVariables(
        v
        for layer in internals.all_layers(model)
        # What a layer learns by `adapt`, such as a mean, is about the data. No model
        # trains it, so it may be shared.
        if not hasattr(layer, "adapt")
        for v in (*internals.own_variables(layer), *internals.own_seeds(layer))
        if is_plain(v)
    )
    return found


def bring_in(model: KerasModel) -> None:
    """Bring the variables that a model got outside the scope into its strategy.

    Optimizer and metrics are always brought in. Weights are if the model got them after
    the scope in which it was made; the others are left as they are.
    """
    strategy = model.__dict__[STRATEGY]
    excluded = model.__dict__.get(_EXCLUDED)
    if excluded is None:  # The scope in which the model was made is still open.
        excluded = _note_excluded(model)
    own = [v for v in model.variables if is_plain(v) and v not in excluded]
    if _convert([*own, *_find_training_variables(model)], strategy):
        _forget_programs(model)


def _convert(found: Iterable[KerasVariable], strategy: Strategy) -> bool:
    """Turn the plain ones among some variables into variables of a strategy.

    Returns:
        Whether there were any.
    """
    wanted = {id(v): v for v in found if is_plain(v)}
    is_default = call_context.is_default(strategy)
    with ambient.push(
        strategy=None if is_default else strategy,
        # A plain frame: the code that runs may be a replica, or be traced.
        mode=ambient.REPLICA if is_default else ambient.CROSS,
        replica=None,
        port=None,
        copy=None,
        placement=call_context.find_placement(strategy),
        state=None,
    ):
        for variable in wanted.values():
            variables.convert(variable)
    return bool(wanted)


def _forget_programs(model: KerasModel) -> None:
    """Make Keras compile its steps again, which were made for other variables."""
    model.train_function = model.test_function = model.predict_function = None


def adopt(obj: object, strategy: Strategy) -> list[KerasModel]:
    """Bring an object of Keras and all that it reaches into a strategy.

    Args:
        obj: a model, layer, optimizer, metric, seed generator or variable.
        strategy: the strategy.

    Returns:
        The models that it reaches, which are to be members of the strategy.

    Raises:
        TypeError: the object is none of these.
        ValueError: it has variables of another strategy.
        RuntimeError: a `fit` of the model is running.
    """
    if not isinstance(obj, _KINDS):
        raise TypeError(
            "strategy.adopt takes a Keras model, layer, optimizer, metric, seed "
            f"generator or variable, received {type(obj).__name__}."
        )
    found, models = _find_variables(obj), _find_models(obj)
    for model in models:
        owner = model.__dict__.get(STRATEGY)
        _check_free(owner, strategy, f"model {model.name!r}")
        if not internals.has_weights(model):
            raise RuntimeError(
                f"The model {model.name!r} is being trained by a running `fit`, which "
                "has its weights. Call strategy.adopt before or after it."
            )
    for variable in found:
        _check_free(_find_owner(variable), strategy, f"variable {variable.path!r}")
    _convert(found, strategy)
    for model in models:
        model.__dict__[_EXCLUDED] = _ExcludedVariables(())
        _forget_programs(model)
    return models


def _find_owner(variable: KerasVariable) -> Strategy | None:
    """Return the strategy of a variable; None if it has none, or no value yet."""
    kept = variable.__dict__.get("_kept")
    return (
        None if kept is None else kept.distribute_strategy or current.default_strategy()
    )


def _check_free(owner: Strategy | None, strategy: Strategy, what: str) -> None:
    """Raise if a model or variable belongs to another strategy."""
    if owner is not None and owner is not strategy:
        raise ValueError(
            f"The {what} belongs to {owner!r} and cannot be adopted by {strategy!r}: "
            "it can have one strategy only. Make a copy with keras.models.clone_model "
            "and set_weights, and adopt the copy."
        )


# Reading and writing a plain variable where a strategy, a program or a tape runs.


def wrap_value(original: property) -> property:
    """Return a `value` of Keras variables, for those that no strategy keeps.

    It brings in a variable that a model of the strategy got later, refuses to read
    another one in a program, and lets open gradient tapes follow what it reads.
    """
    get = original.fget
    assert get is not None

    @functools.wraps(get)
    def value(self: KerasVariable) -> jax.Array:
        if not is_plain(self) or _is_given(self):
            return get(self)
        frame = ambient.current()
        is_compiled = frames.frame().is_compiled
        if is_compiled or frame.strategy is not None:
            _look_for_owner(self)
            if is_compiled:
                bring_into_program(self)
            if not is_plain(self):
                return self.value
        raw = internals.stored_value(self)
        if frame.tape is None or raw is None:
            return get(self)
        followed = kept_variables.follow(frame.tape, self, raw, self.trainable)
        return internals.autocast(self, followed)

    return property(value)


def _is_given(variable: KerasVariable) -> bool:
    """Whether Keras itself passes the value of a variable, or there is none yet.

    It passes values in a stateless scope, but not all: recurrent layers open such a
    scope for what they assign, and read their weights in it as anywhere else.
    """
    if not internals.in_stateless_scope():
        return False
    given = internals.get_stateless_scope().get_current_value(variable)
    return given is not None or internals.stored_value(variable) is None


def wrap_assign(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `_direct_assign` that stores no gradient, and no value of a trace."""

    @functools.wraps(original)
    def assign(self: KerasVariable, value: jax.Array) -> None:
        if not is_plain(self) or internals.in_stateless_scope():
            original(self, value)
        elif frames.frame().is_compiled and self.__dict__.get("_value") is not None:
            bring_into_program(self)
            internals.store(self, value)  # It is another class's now.
        elif ambient.current().tape is not None:
            original(self, frames.strip_gradient(value))
        else:
            original(self, value)

    return assign


def _look_for_owner(variable: KerasVariable) -> None:
    """Bring in the models of the current strategy that have a variable."""
    if "_unisono_unowned" in variable.__dict__:
        return  # A loop may read it at every step, so the search is done only once.
    strategy = current.get_strategy()
    for model in list(_members):
        if model.__dict__[STRATEGY] is strategy and any(
            v is variable for v in _find_variables(model)
        ):
            bring_in(model)
    if is_plain(variable):
        variable.__dict__["_unisono_unowned"] = True


def bring_into_program(variable: KerasVariable) -> None:
    """Let a program that is being traced have a variable made outside every scope.

    A program of no strategy makes it a variable of the default strategy.

    Raises:
        RuntimeError: the program is one of a strategy's, which would keep the value
            that the variable has now.
    """
    if not is_plain(variable):
        return
    if ambient.current().strategy is None:
        _convert([variable], current.default_strategy())
        return
    raise RuntimeError(
        f"The Keras variable '{variable.path}' was made outside every scope, so a "
        "compiled function would keep its value of this moment for ever. Make the "
        "model, optimizer or metric inside `with strategy.scope():`, or bring it in "
        "with strategy.adopt(model)."
    )


# Loops.


def check_members(model: KerasModel) -> None:
    """Raise if a variable of a model was made outside the scope of its strategy.

    Raises:
        ValueError: there is such a variable; the message names it.
    """
    strategy = model.__dict__[STRATEGY]
    for variable in model.variables:
        if _find_owner(variable) is not strategy:
            message = (
                f"The variable {variable.path!r} of the model {model.name!r} was not "
                f"created in the distribution strategy scope of {strategy!r}, as the "
                "model was. Create its layer inside `with strategy.scope():` as well, "
                "or bring the layer, or the model that it comes from, in with "
                "strategy.adopt(layer)."
            )
            raise errors.add_section(ValueError(message), "Not created in the scope")
    for variable in _find_training_variables(model):
        _check_free(_find_owner(variable), strategy, f"variable {variable.path!r}")
