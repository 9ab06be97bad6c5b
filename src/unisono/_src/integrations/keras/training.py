"""`compile`, `fit`, `evaluate` and `predict` of models that were made in a scope.

Keras' own loop runs, over arrays that all devices of the strategy hold and batches that
are split over them. A model remembers its strategy, so its methods may be called
outside the scope. Whatever is raised on the way, its weights can be read afterwards.
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
    inputs,
    strategy_distribution,
    variables,
    workers,
)
from unisono._src.machines import topology

_STRATEGY = "distribute_strategy"
_LATEST = "_unisono_latest"
LOOPS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)
_KINDS = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)
_throttle = topology.THROTTLE


# A model made in a scope.


def creating(original: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of a model, which then belongs to the current strategy."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        strategy = ambient.current().strategy
        if strategy is not None and _STRATEGY not in self.__dict__:
            belong(self, strategy)

    return init


def belong(model: Any, strategy: Any) -> None:
    """Let the methods of a model enter the scope of its strategy by themselves."""
    # On the object, as Keras does with `build`: other models are not concerned.
    own = model.__dict__
    own[_STRATEGY] = strategy
    for name in LOOPS:
        own[name] = types.MethodType(_carried(name), model)
    for name in ("compile", "load_weights"):
        own[name] = types.MethodType(_in_scope(name), model)


@functools.cache
def _carried(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(keras.Model, name))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with training(self):
            return getattr(type(self), name)(self, *args, **kwargs)

    return method


@functools.cache
def _in_scope(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(keras.Model, name))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.__dict__[_STRATEGY].scope():
            return getattr(type(self), name)(self, *args, **kwargs)

    return method


def looping(original: Callable[..., Any]) -> Callable[..., Any]:
    """A loop of Keras, which takes datasets of ours, but no model made elsewhere."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = ambient.current().strategy
        if strategy is not None and self.__dict__.get(_STRATEGY) is not strategy:
            raise ValueError(
                f"The model {self.name!r} was not created in the distribution strategy "
                f"scope of {strategy!r}, in which its `{original.__name__}` is called. "
                "Create and compile the model inside `with strategy.scope():`, or call "
                "the method outside the scope."
            )
        _check_made_in(strategy, self)
        found = inputs.bound(original, args, kwargs)
        if found is None:
            return original(self, *args, **kwargs)
        if strategy is not None:
            workers.prepare(strategy, original, found.arguments)
        return original(self, *found.args[1:], **found.kwargs)

    return method


def _check_made_in(strategy: Any, model: Any) -> None:
    if strategy is None:
        return
    for variable in model.variables:
        if getattr(variable, "distribute_strategy", None) is not strategy:
            raise ValueError(
                f"The variable {variable.path!r} of the model {model.name!r} was not "
                f"created in the distribution strategy scope of {strategy!r}, as the "
                "model was. Create its layer inside `with strategy.scope():` as well."
            )


@contextlib.contextmanager
def training(model: Any) -> Iterator[None]:
    """A block in which Keras' programs take the variables of `model` whole."""
    strategy = model.__dict__[_STRATEGY]
    if strategy_distribution.is_training() and ambient.current().strategy is strategy:
        yield
        return
    with strategy.scope():
        distribution = strategy_distribution.StrategyDistribution(
            strategy.extended._placement, variables.adopt, is_training=True
        )
        with distribution.scope():
            try:
                yield
            except BaseException:
                _rescue(model)
                raise
            finally:
                model.__dict__.pop(_LATEST, None)


# Whatever a step raises.


def stepping(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_make_function`, whose steps leave their latest state where it can be found."""

    @functools.wraps(original)
    def make(self: Any, step_function: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.__dict__.get(_STRATEGY)
        if strategy is None:
            return original(self, step_function, *args, **kwargs)
        devices = strategy.extended._placement.topology
        if devices.is_spread:
            step_function = workers.together(step_function, devices)
        step = _kept_step(self, step_function, devices.needs_throttle)
        return original(self, step, *args, **kwargs)

    return make


def syncing(original: Callable[..., None]) -> Callable[..., None]:
    """`jax_state_sync`, which stores arrays that nobody else has."""

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

    They differ after an error between two steps of one execution.
    """
    latest = model.__dict__.get(_LATEST)
    if latest is None or model._jax_state_synced or not model._jax_state:
        return
    if any(x.is_deleted() for x in jax.tree.leaves(latest)):
        model._jax_state_synced = True
        return
    model._jax_state = dict(zip(_kinds(len(latest)), latest, strict=True))


def _kept_step(model: Any, step: Any, is_throttled: bool) -> Callable[..., Any]:
    own = model.__dict__

    def run(state: Any, data: Any) -> Any:
        done: list[Any] = []
        try:
            # One instruction of Python, so that an interrupt finds either the state
            # that went in or the one that came out.
            done.extend(map(step, (state,), (data,)))
        finally:
            if done:
                own[_LATEST] = done[0][1]
        outputs, new = done[0]
        if is_throttled:
            _throttle.count += 1
            if _throttle.count >= _throttle.group:
                _throttle.wait(jax.tree.leaves(outputs), jax.tree.leaves(new))
        return outputs, new

    return run


def _rescue(model: Any) -> None:
    """Give every variable the latest value that still exists."""
    latest = model.__dict__.pop(_LATEST, None) or ()
    model._jax_state, model._jax_state_synced = None, True
    for kept, values in zip(_lists(model, len(latest)), latest, strict=True):
        for variable, value in zip(kept, values, strict=False):
            if _is_ours(variable) and variable._is_lost() and not value.is_deleted():
                variable._direct_assign(value)
    for variable in [*model.variables, *_optimizer_variables(model)]:
        if _is_ours(variable):
            variable._take_back()


def _is_ours(variable: Any) -> bool:
    return isinstance(variable, variables.StrategyVariable)


def _lists(model: Any, count: int) -> list[Any]:
    """The variables of the state of a training, test or prediction step."""
    return [
        _optimizer_variables(model) if kind == _KINDS[2] else getattr(model, kind)
        for kind in _kinds(count)
    ]


def _kinds(count: int) -> tuple[str, ...]:
    return {0: (), 2: _KINDS[:2], 3: (*_KINDS[:2], _KINDS[3]), 4: _KINDS}[count]


def _optimizer_variables(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    return [] if optimizer is None else optimizer.variables


def iterating(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_get_distributed_iterator`, which lays out every batch by itself.

    Keras keeps the layout of an epoch's first batch, which does not fit a last batch of
    another size.
    """

    @functools.wraps(original)
    def iterate(self: Any, distribution: Any) -> Any:
        if not isinstance(distribution, strategy_distribution.StrategyDistribution):
            return original(self, distribution)
        return distribution.batches(self.data_adapter.get_jax_iterator())

    return iterate
