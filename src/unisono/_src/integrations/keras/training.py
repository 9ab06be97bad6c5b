"""`compile`, `fit`, `evaluate` and `predict` of models that were made in a scope.

Keras' own loop runs, with weights that all devices of the strategy have and batches
that are split over the devices. A model remembers its strategy, so its methods may be
called outside the scope. After an error the weights can still be read. See
docs/decisions/0014.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras

from unisono._src.foundation import ambient
from unisono._src.integrations.keras import (
    adoption,
    inputs,
    internals,
    strategy_distribution,
    variables,
    workers,
)
from unisono._src.machines import topology
from unisono._src.strategies import call_context, default

# Under this name a model has, while a loop runs, the state that its latest step
# returned.
_LATEST = "_unisono_latest"
_STRATEGY = adoption.STRATEGY
LOOPS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)
# The parts of the state of a training step, in the order in which Keras passes them.
_KINDS = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)
_throttle = topology.THROTTLE


# A model made in a scope.


def wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of models that attaches them to the current strategy."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        strategy = _find_strategy()
        if strategy is not None and _STRATEGY not in self.__dict__:
            attach(self, strategy)
            adoption.note_new_model(self)

    return init


def _find_strategy() -> Any:
    """Return the strategy whose scope is open in this thread, or None."""
    strategy = ambient.current().strategy
    if strategy is None and strategy_distribution.current() is not None:
        return default.instance()  # Its scope leaves no other trace.
    return strategy


def attach(model: Any, strategy: Any) -> None:
    """Attach a model to a strategy: its methods then enter the scope by themselves."""
    # The methods are replaced on the object, as Keras does with `build`. So models
    # made outside scopes are untouched.
    own = model.__dict__
    adoption.enroll(model, strategy)
    for name in LOOPS:
        own[name] = types.MethodType(_make_loop_method(name), model)
    for name in ("compile", "load_weights"):
        own[name] = types.MethodType(_make_scoped_method(name), model)


@functools.cache
def _make_loop_method(name: str) -> Callable[..., Any]:
    """Return a method that runs a loop of Keras in the strategy of its model."""

    @functools.wraps(getattr(keras.Model, name))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.__dict__[_STRATEGY]
        placement = call_context.find_placement(strategy)
        servers = None if placement is None else placement.servers
        if name == "fit" and servers is not None:
            with strategy.scope():
                adoption.bring_in(self)
                fit = servers.load_fit()
                return fit(self, strategy, _enter_loop, *args, **kwargs)
        if name.endswith("_on_batch"):
            strategy_distribution.check_numbers((args, kwargs))
        with _enter_loop(self):
            return getattr(type(self), name)(self, *args, **kwargs)

    return method


@functools.cache
def _make_scoped_method(name: str) -> Callable[..., Any]:
    """Return a method that runs in the scope of its model's strategy."""

    @functools.wraps(getattr(keras.Model, name))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.__dict__[_STRATEGY].scope():
            result = getattr(type(self), name)(self, *args, **kwargs)
            adoption.bring_in(self)
            return result

    return method


def wrap_loop(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loop of Keras that also takes datasets of unisono.

    In a scope the loop raises `ValueError` for a model that was made outside of it.
    """

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = ambient.current().strategy
        if strategy is not None and self.__dict__.get(_STRATEGY) is not strategy:
            raise ValueError(
                f"The model {self.name!r} was not created in the distribution strategy "
                f"scope of {strategy!r}, in which its `{original.__name__}` is called. "
                "Create and compile the model inside `with strategy.scope():`, bring "
                "it in with strategy.adopt(model), or call the method outside the "
                "scope."
            )
        if strategy is not None:
            adoption.check_members(self)
        found = inputs.bind_arguments(original, args, kwargs)
        if found is None:
            return original(self, *args, **kwargs)
        agreement = None
        if strategy is not None:
            agreement = workers.prepare(strategy, original, found.arguments)
        with contextlib.nullcontext() if agreement is None else agreement.hold(self):
            return original(self, *found.args[1:], **found.kwargs)

    return method


@contextlib.contextmanager
def _enter_loop(model: Any) -> Iterator[None]:
    """Run a block in which Keras' programs take the variables of `model` whole."""
    strategy = model.__dict__[_STRATEGY]
    # A loop in a loop, such as `evaluate` in a callback: the state is the outer one's.
    if strategy_distribution.is_training() and ambient.current().strategy is strategy:
        yield
        return
    with strategy.scope():
        adoption.bring_in(model)
        placement = call_context.find_placement(strategy)
        if placement is None:
            yield  # The default strategy has one copy of all, as Keras itself.
            return
        distribution = strategy_distribution.StrategyDistribution(
            placement, variables.adopt, is_training=True
        )
        with distribution.scope():
            try:
                yield
            except BaseException:  # `KeyboardInterrupt` too.
                # A step that has failed had taken the arrays of the variables.
                _rescue(model)
                raise
            finally:
                model.__dict__.pop(_LATEST, None)


# The state of the latest step, which survives whatever is raised.


def wrap_make_function(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `_make_function` whose steps record the state that they return."""

    @functools.wraps(original)
    def make(self: Any, step_function: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.__dict__.get(_STRATEGY)
        placement = None if strategy is None else call_context.find_placement(strategy)
        if placement is None:
            return original(self, step_function, *args, **kwargs)
        devices = placement.topology
        if devices.is_spread:
            step_function = workers.watch_step(step_function, devices)
        step = _record_state(self, step_function, devices.needs_throttle)
        return original(self, step, *args, **kwargs)

    return make


def wrap_state_sync(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `jax_state_sync` that moves the state of a step into the variables.

    No one else refers to these arrays, so the variables need no copies.
    """

    @functools.wraps(original)
    def sync(self: Any) -> None:
        found = strategy_distribution.current()
        if found is None or not found.is_training:
            original(self)
            return
        before, found.is_syncing = found.is_syncing, True
        try:
            _renew_state(self)
            original(self)
        finally:
            found.is_syncing = before

    return sync


def _renew_state(model: Any) -> None:
    """Let Keras store the state of the latest step, or nothing if it is gone.

    Keras itself knows the state after the latest execution, which may have several
    steps. After an error between two of them that is not the state of the latest step.
    """
    latest = model.__dict__.get(_LATEST)
    if latest is None or internals.has_weights(model):
        return
    if not internals.loop_state(model):
        return
    # The step that failed had taken over the arrays, so there is nothing to store.
    if any(x.is_deleted() for x in jax.tree.leaves(latest)):
        internals.give_weights_back(model)
        return
    state = dict(zip(_kinds(len(latest)), latest, strict=True))
    internals.set_loop_state(model, state)


def _record_state(model: Any, step: Any, is_throttled: bool) -> Callable[..., Any]:
    """Return a step that records the state that it returns in its model."""
    own = model.__dict__

    def run(state: Any, data: Any) -> Any:
        done: list[Any] = []
        try:
            # Call and store are one instruction of Python. The step donates the old
            # state, so an interrupt between the two would lose both.
            done.extend(map(step, (state,), (data,)))
        finally:
            if done:
                own[_LATEST] = done[0][1]
        outputs, new = done[0]
        if is_throttled:
            # Virtual CPU devices must not queue too many programs, see
            # docs/decisions/0005.
            _throttle.count += 1
            if _throttle.count >= _throttle.group:
                _throttle.wait(jax.tree.leaves(outputs), jax.tree.leaves(new))
        return outputs, new

    return run


def _rescue(model: Any) -> None:
    """Give every variable of a model the latest value that still exists."""
    latest = model.__dict__.pop(_LATEST, None) or ()
    internals.set_loop_state(model, None)
    internals.give_weights_back(model)
    for kept, values in zip(_state_variables(model, len(latest)), latest, strict=True):
        for variable, value in zip(kept, values, strict=False):
            if _is_ours(variable) and variable.is_lost() and not value.is_deleted():
                internals.store(variable, value)
    for variable in [*model.variables, *_optimizer_variables(model)]:
        if _is_ours(variable):
            variable.take_back()


def _is_ours(variable: Any) -> bool:
    return isinstance(variable, variables.StrategyVariable)


def _state_variables(model: Any, count: int) -> list[Any]:
    """Return the variables of a step's state, in lists as the state has them.

    Args:
        model: the model.
        count: the number of parts of the state.
    """
    return [
        _optimizer_variables(model) if kind == _KINDS[2] else getattr(model, kind)
        for kind in _kinds(count)
    ]


def _kinds(count: int) -> tuple[str, ...]:
    """Return the parts of the state of a step that has `count` of them."""
    # A prediction step has two parts, a test step three, a training step all four.
    return {0: (), 2: _KINDS[:2], 3: (*_KINDS[:2], _KINDS[3]), 4: _KINDS}[count]


def _optimizer_variables(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    return [] if optimizer is None else optimizer.variables


def wrap_batch_iterator(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `_get_distributed_iterator` that lays out each batch by its own size.

    Keras uses the layout of the first batch of an epoch for all, which does not fit a
    last batch of another size.
    """

    @functools.wraps(original)
    def iterate(self: Any, distribution: Any) -> Any:
        if not isinstance(distribution, strategy_distribution.StrategyDistribution):
            return original(self, distribution)
        return distribution.batches(self.data_adapter.get_jax_iterator())

    return iterate
