"""A second way of `fit`: every replica runs the step of a model on its part of a batch.

Keras on JAX calls ``train_step(state, data)``, a pure function. A model that was
written for TensorFlow has ``train_step(data)``, which computes gradients with a tape
and changes variables. Its step runs by `Strategy.run`, as on TensorFlow: on a replica's
part of the batch, with losses that are scaled (`recognition`). The loop stays Keras'
own; it carries an empty state, because the variables keep their values. On request
(`compile(per_replica=True)`) Keras' own training step runs so, too. See
docs/decisions/0034.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.experimental import sparse

from unisono._src.execution import call_modes, function, gradient_tape
from unisono._src.foundation import nest
from unisono._src.input.distribution import steps
from unisono._src.integrations.keras import (
    adoption,
    internals,
    observed_steps,
    training,
)
from unisono._src.integrations.keras.internals import KerasModel
from unisono._src.machines.topology import Topology
from unisono._src.strategies import call_context, current
from unisono._src.strategies.base import Strategy
from unisono._src.values import distributed

# The steps of a model, and the functions that Keras makes of them.
_FUNCTIONS = {
    "train_step": "train_function",
    "test_step": "test_function",
    "predict_step": "predict_function",
}
# Under this name a model has that its training step is to run on each replica.
_REQUEST = "_unisono_per_replica"
_Logs = dict[str, Any]
_State = Sequence[list[jax.Array]]
# What Keras' loops call with their state and an iterator over batches.
_Execution = Callable[[_State, Iterator[Any]], tuple[Any, _State]]


# Which models have steps for replicas.


def is_for_replicas(model: KerasModel, step: str) -> bool:
    """Return whether a step of a model runs on each replica by itself.

    Args:
        model: the model.
        step: ``"train_step"``, ``"test_step"`` or ``"predict_step"``.
    """
    if step == "train_step" and _REQUEST in model.__dict__:
        return True
    kinds = inspect.Parameter
    required = [
        x
        for x in inspect.signature(getattr(model, step)).parameters.values()
        if x.default is kinds.empty and x.kind is not kinds.VAR_KEYWORD
    ]
    # Keras' own on JAX takes the state and the data.
    return len(required) == 1 and required[0].kind is not kinds.VAR_POSITIONAL


def has_own_step(model: KerasModel) -> bool:
    """Return whether a model has another training step than Keras' own."""
    kind: Any = type(model)
    return kind.train_step is not internals.JAXTrainer.train_step


def request(model: KerasModel, is_wanted: bool) -> None:
    """Let Keras' own training step run on each replica, or on whole batches again.

    Raises:
        ValueError: the model has a step for whole batches of its own.
    """
    model.__dict__.pop(_REQUEST, None)
    if not is_wanted or is_for_replicas(model, "train_step"):
        return
    if has_own_step(model):
        kind = type(model).__name__
        raise ValueError(
            f"{kind}.train_step takes (state, data), the whole batch, so "
            "compile(per_replica=True) cannot run it on each replica. Leave the "
            f"argument out, or write {kind}.train_step(self, data) with a "
            "unisono.GradientTape."
        )
    model.__dict__[_REQUEST] = True


def find_strategy(model: KerasModel) -> Strategy:
    """Return the strategy of a model; the default one if it was made in no scope."""
    found: Strategy | None = model.__dict__.get(adoption.STRATEGY)
    return found or current.default_strategy()


# What Keras' loops get in place of their own functions.


def wrap_maker(step: str, original: Callable[..., object]) -> Callable[..., object]:
    """Return a `make_train_function` that knows steps for replicas, or its like."""

    @functools.wraps(original)
    def make(self: KerasModel, force: bool = False) -> object:
        if not is_for_replicas(self, step):
            is_seen = call_modes.Observers.current is not None
            if not is_seen or step != "train_step":
                return original(self, force=force)
            if force or self.train_function is None:
                observed_steps.make_observed(
                    self, functools.partial(original, self, force=True)
                )
            return None
        name = _FUNCTIONS[step]
        if force or getattr(self, name) is None:
            setattr(self, name, _make_execution(self, step))
        return None

    return make


def wrap_get_state(original: Callable[..., _State]) -> Callable[..., _State]:
    """Return a `_get_jax_state` that leaves the values to the variables.

    The state is empty, and so is what Keras stores in the variables afterwards.
    """

    @functools.wraps(original)
    def get_state(
        self: KerasModel, *, purge_model_variables: bool = False, **parts: bool
    ) -> _State:
        # Only training has the variables of the optimizer, and prediction no metrics.
        if parts.get("optimizer_variables"):
            step = "train_step"
        elif parts.get("metrics_variables"):
            step = "test_step"
        else:
            step = "predict_step"
        if is_for_replicas(self, step):
            return tuple([] for is_wanted in parts.values() if is_wanted)
        return original(self, purge_model_variables=purge_model_variables, **parts)

    return get_state


def wrap_build(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `_symbolic_build` that leaves what it cannot build to the step.

    It calls the model on a batch. A model for replicas need not take one: its step
    decides what is called, as in a model of two networks. What is wrong with a model
    that does take it comes up again in the step.
    """

    @functools.wraps(original)
    def build(self: KerasModel, *args: object, **kwargs: object) -> None:
        try:
            original(self, *args, **kwargs)
        except Exception:
            if not is_for_replicas(self, "train_step"):
                raise

    return build


@final
class _Steps:
    """Runs a step of a model on all replicas, and joins what they return.

    Args:
        model: the model.
        step: the name of the step.
    """

    def __init__(self, model: KerasModel, step: str) -> None:
        self._model, self._step = model, step
        self._strategy = find_strategy(model)
        placement = call_context.find_placement(self._strategy)
        self._topology: Topology | None = placement and placement.topology

    def __call__(self, batch: object) -> Any:
        """Take one step; it is compiled unless the model runs eagerly."""
        cut = functools.partial(cut_rows, topology=self._topology)
        found = self._strategy.run(
            getattr(self._model, self._step),
            args=(jax.tree.map(cut, batch, is_leaf=_is_sparse),),
        )
        join = self._gather if self._step == "predict_step" else self._average
        return nest.map_structure(join, found)

    def _average(self, value: object) -> object:
        if not isinstance(value, distributed.DistributedValues):
            return value
        return self._strategy.reduce("MEAN", value, axis=None)

    def _gather(self, value: object) -> object:
        if not isinstance(value, distributed.DistributedValues):
            return value
        return self._strategy.gather(value, axis=0)


def _make_execution(model: KerasModel, step: str) -> _Execution:
    """Return what Keras' loop calls for one or more steps."""
    take: Callable[[object], Any] = _Steps(model, step)
    if not model.run_eagerly:
        take = function.Function(take)

    def execute(state: _State, iterator: Iterator[Any]) -> tuple[Any, _State]:
        # A validation in Keras' own way has left one.
        training.forget_state(model)
        outputs = [take(next(iterator))]
        for _ in range(1, model.steps_per_execution or 1):
            batch = next(iterator, None)
            if batch is None:
                break
            outputs.append(take(batch))
        if step == "predict_step":
            return keras.tree.map_structure(_concatenate, *outputs), state
        return outputs[-1], state

    return execute


def _concatenate(*parts: jax.Array) -> jax.Array | np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _is_sparse(x: object) -> bool:
    return isinstance(x, sparse.JAXSparse)


def cut_rows(x: Any, topology: Topology | None) -> Any:
    """Return the rows of a global batch for each replica, as TensorFlow cuts it.

    Args:
        x: an array of the batch.
        topology: the replicas; None for one.

    Raises:
        TypeError: a sparse array is to be cut.
    """
    if topology is None or topology.replicas == 1 or jnp.ndim(x) == 0:
        return x
    if _is_sparse(x):
        raise TypeError(
            "A step that takes `data` alone runs on each replica, and a sparse batch "
            "cannot be split. Give fit dense arrays."
        )
    rows, replicas = x.shape[0], topology.replicas
    if rows % replicas == 0:
        stacked = jnp.reshape(x, (replicas, rows // replicas, *x.shape[1:]))
        return distributed.PerReplica.from_stacked(stacked, replicas, topology)
    bounds = steps.chunks(rows, replicas)
    return distributed.PerReplica([x[a:b] for a, b in bounds], topology)


# The steps that Keras has on TensorFlow, for `super().train_step(data)`.


def wrap_step(
    original: Callable[..., Any], step: Callable[[KerasModel, Any], Any]
) -> Callable[..., Any]:
    """Return a step of Keras that also takes the data alone, as on TensorFlow."""

    @functools.wraps(original)
    def take(self: KerasModel, *args: Any, **kwargs: Any) -> Any:
        is_alone = len(args) + len(kwargs) == 1
        return (step if is_alone else original)(self, *args, **kwargs)

    return take


def train_step(model: KerasModel, data: Any) -> _Logs:
    """Train a model on a replica's part of a batch, and return its metrics."""
    x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
    with gradient_tape.GradientTape() as tape:
        found = internals.call_model(model, x, training=True)
        loss = internals.compute_loss(model, x, y, found, weight, training=True)
        track_loss(model, loss, x)
        assert model.optimizer is not None
        scaled = model.optimizer.scale_loss(loss)
    weights = model.trainable_variables
    if weights:
        gradients = tape.gradient(scaled, weights)
        model.optimizer.apply_gradients(zip(gradients, weights, strict=True))
    else:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
    return model.compute_metrics(x, y, found, sample_weight=weight)


def test_step(model: KerasModel, data: Any) -> _Logs:
    """Evaluate a model on a replica's part of a batch, and return its metrics."""
    x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
    found = internals.call_model(model, x, training=False)
    track_loss(model, internals.compute_loss(model, x, y, found, weight, False), x)
    return model.compute_metrics(x, y, found, sample_weight=weight)


def predict_step(model: KerasModel, data: Any) -> object:
    """Return what a model makes of a replica's part of a batch."""
    x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
    return internals.call_model(model, x, training=False)


def track_loss(model: KerasModel, loss: jax.Array, x: object) -> None:
    """Add a loss to the mean loss of the epoch, by the size of its part.

    Args:
        model: the model.
        loss: the loss, scaled.
        x: arrays with a row for each example.
    """
    rows = next(iter(jax.tree.leaves(x))).shape[0]
    whole = internals.loss.unscale_loss_for_distribution(loss)
    internals.loss_tracker(model).update_state(whole, sample_weight=rows)
