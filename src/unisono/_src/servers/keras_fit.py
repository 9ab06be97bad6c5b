"""`fit` of a model whose variables are on parameter servers.

Keras' own loop waits for every step. Here steps are scheduled on workers, and the loop
waits at the end of each epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, final

import jax
import jax.numpy as jnp
import keras
import numpy as np

from unisono._src.execution import function, gradients
from unisono._src.foundation import nest
from unisono._src.input.api import dataset as dataset_module
from unisono._src.input.plan import elements
from unisono._src.integrations.keras import (
    backup,
    internals,
    positions,
    replica_steps,
)
from unisono._src.integrations.keras.dataset_creator import DatasetCreator
from unisono._src.servers import cluster_coordinator, worker_data

# The types of the datasets that a `ParameterServerStrategy` distributes.
_WORKER_DATA = (worker_data.WorkerBatches, worker_data.WorkerFunction)


def fit(
    model: Any,
    strategy: Any,
    block: Callable[[Any], AbstractContextManager[None]],
    x: Any = None,
    y: Any = None,
    batch_size: Any = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    *,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    **others: Any,
) -> Any:
    """Train a model on the workers of a strategy; see `keras.Model.fit`.

    Args:
        model: the model, which was made and compiled in the strategy's scope.
        strategy: the strategy.
        block: makes a block in which Keras' own programs use the model.
        x: a `DatasetCreator`; a dataset, or what the strategy has made of one; or
            arrays. Every worker gets the whole dataset, or all arrays, shuffled.
        y: the targets, if `x` are arrays.
        batch_size: how many examples a batch has, if `x` are arrays; default 32.
        epochs: the number of the last epoch.
        verbose: as for `keras.Model.fit`.
        callbacks: as for `keras.Model.fit`. They are called for epochs; steps do not
            end in order.
        initial_epoch: the number of epochs that were trained before.
        steps_per_epoch: how many batches all workers take together in an epoch.
        **others: arguments that are not for parameter servers.

    Returns:
        Keras' `History`.

    Raises:
        ValueError: `x` is something else, there is no `steps_per_epoch`, or there are
            arguments that are not for parameter servers.
    """
    _check(steps_per_epoch, others)
    assert steps_per_epoch is not None
    dataset = _find_dataset(x, y, batch_size, strategy)
    coordinator = cluster_coordinator.ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    with block(model):
        # On this process: the trace of a step must find all variables.
        _build(model, iterator)
    # Two programs: one for full executions, and one for the rest of an epoch.
    together = model.steps_per_execution or 1
    step = _make_step(model, strategy, together)
    last = _make_step(model, strategy, steps_per_epoch % together)
    told = {"epochs": epochs, "steps": steps_per_epoch}
    listeners = _make_listeners(model, callbacks, verbose, told)
    _prepare_backups(listeners.callbacks, steps_per_epoch)
    model.stop_training = False
    # A backup sets it, as for Keras' own loop.
    internals.set_first_epoch(model, None)
    listeners.on_train_begin()
    logs: dict[str, Any] = {}
    for epoch in range(internals.first_epoch(model) or initial_epoch, epochs):
        model.reset_metrics()
        listeners.on_epoch_begin(epoch)
        for _ in range(steps_per_epoch // together):
            coordinator.schedule(step, args=(iterator,))
        if steps_per_epoch % together:
            coordinator.schedule(last, args=(iterator,))
        coordinator.join()
        # All steps have ended, so the servers have the metrics of the whole epoch.
        logs = {k: float(v) for k, v in model.get_metrics_result().items()}
        listeners.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    listeners.on_train_end(logs)
    return model.history


def _make_listeners(model: Any, callbacks: Any, verbose: Any, told: Any) -> Any:
    """Return the callbacks of `fit`, with those that Keras adds."""
    return keras.callbacks.CallbackList(
        callbacks,
        add_history=True,
        add_progbar=verbose not in (0, None),
        verbose=1 if verbose == "auto" else verbose,
        model=model,
        **told,
    )


@final
class _EpochInput:
    """Tells a backup that an epoch begins with any batches of the workers' datasets.

    Attributes:
        done: how many steps of an epoch were done before; always 0.
        batches_in_epoch: how many steps an epoch has.
    """

    done = 0

    def __init__(self, steps: int) -> None:
        self.batches_in_epoch = steps

    def get_state(self) -> dict[str, Any]:
        """Return nothing: workers read in no order, so there is no position."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Do nothing: there is no position to restore."""

    def has_next(self) -> bool:
        """Return True: the datasets of workers do not end."""
        return True


def _prepare_backups(callbacks: list[Any], steps: int) -> None:
    """Let backups be made after epochs, which begin anew after a restart."""
    for callback in callbacks:
        if isinstance(callback, backup.BackupAndRestore):
            if callback.save_freq != "epoch":
                raise ValueError(
                    "Under a ParameterServerStrategy steps do not end in order: "
                    "BackupAndRestore takes save_freq='epoch' only, received "
                    f"{callback.save_freq}."
                )
            positions.give_input([callback], _EpochInput(steps))


def _find_dataset(x: Any, y: Any, batch_size: int | None, strategy: Any) -> Any:
    """Return the dataset that every worker makes for itself."""
    given = x if y is None else (x, y)
    arrays = list(nest.leaves(given))
    if isinstance(x, DatasetCreator):
        found: Any = worker_data.WorkerFunction(x, strategy.num_replicas_in_sync)
    elif isinstance(x, _WORKER_DATA) or elements.is_dataset(x):
        found = x
    elif arrays and all(isinstance(a, (np.ndarray, jax.Array)) for a in arrays):
        given = nest.map_structure(np.asarray, given)
        data = dataset_module.Dataset.from_tensor_slices(given)
        # Every worker reads all examples, in an order of its own, for ever.
        return data.shuffle(len(arrays[0])).repeat().batch(batch_size or 32)
    else:
        raise ValueError(
            "Under a ParameterServerStrategy x of `fit` is a dataset, arrays, or "
            "unisono.keras.utils.experimental.DatasetCreator(dataset_fn), with which "
            f"every worker makes its own dataset; received {type(x).__name__}."
        )
    if y is not None or batch_size is not None:
        raise ValueError("y and batch_size are for arrays only; a dataset has its own.")
    return found


def _check(steps: int | None, others: dict[str, Any]) -> None:
    """Raise unless the arguments of `fit` are those of parameter servers."""
    if not steps:
        raise ValueError(
            "`fit` under a ParameterServerStrategy needs steps_per_epoch: how many "
            "batches all workers take together in an epoch."
        )
    unknown = sorted(k for k, v in others.items() if v is not None)
    if unknown:
        raise ValueError(
            f"`fit` under a ParameterServerStrategy does not take {unknown}. Call "
            "evaluate between calls of fit, and weight examples in the dataset."
        )


def _build(model: Any, iterator: Any) -> None:
    """Make the metrics and the optimizer's slots, as Keras does at the first batch."""
    # Only shapes and types count: nothing is computed from the example.
    example = nest.map_structure(jnp.zeros_like, iterator.pull())
    batch = example if isinstance(example, tuple) else (example,)
    internals.build(model, batch)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _find_own_step(model: Any) -> Callable[[Any], object] | None:
    """Return the step that a model has of its own, or None.

    Raises:
        NotImplementedError: it is one of Keras on JAX.
    """
    if replica_steps.is_for_replicas(model, "train_step"):
        found: Callable[[Any], object] = model.train_step
        return found
    if replica_steps.has_own_step(model):
        kind = type(model).__name__
        raise NotImplementedError(
            f"{kind}.train_step takes (state, data), a pure function of all variables, "
            "which parameter servers cannot update by parts. Write "
            f"{kind}.train_step(self, data) with a unisono.GradientTape."
        )
    return None


def _make_step(model: Any, strategy: Any, count: int) -> Any:
    """Return a function that trains a model on some batches of a worker."""
    own = _find_own_step(model)

    def replica_fn(batch: Any) -> None:
        if own is not None:
            own(batch)
            return
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)

        def loss_fn() -> Any:
            found = model(x, training=True)
            loss = model.compute_loss(
                x=x, y=y, y_pred=found, sample_weight=weight, training=True
            )
            return loss, found

        weights = model.trainable_variables
        compute: Any = gradients.value_and_grad(loss_fn, weights, True)
        (loss, found), slopes = compute()
        # In replica context, so that servers make the update (`optimizers`).
        model.optimizer.apply(slopes, weights)
        # The mean loss of the epoch weights batches by their size, as Keras does.
        size = next(iter(nest.leaves(x))).shape[0]
        internals.loss_tracker(model).update_state(loss, sample_weight=size)
        model.compute_metrics(x, y, found, weight)

    def train_step(iterator: Any) -> None:
        for _ in range(count):
            strategy.run(replica_fn, args=(next(iterator),))

    return function.Function(train_step)
