"""`BackupAndRestore`: a `fit` that goes on where it was stopped."""

from __future__ import annotations

import os
import shutil
from typing import Any

import keras
import numpy as np
from keras.src.random import seed_generator

from unisono._src.foundation.public_names import publish
from unisono._src.integrations.keras import positions, saving, scope
from unisono._src.saving.checkpoint import checkpoint as checkpoints
from unisono._src.saving.checkpoint import manager, status, worker_meeting


class BackupAndRestore(keras.callbacks.Callback):
    """Lets a `fit` that was stopped at any moment go on where its last backup was.

    As `keras.callbacks.BackupAndRestore`, but the step within the epoch counts as well.
    A backup has the weights, the optimizer, the states of metrics and random generators
    and the position in the data, so the weights at the end are those of a `fit` that
    nothing stopped, bit for bit. It is written aside and becomes visible at once;
    whatever happens meanwhile, the one before is there.

    The model must be made in a strategy's scope. With several workers every one gives
    the callback, with a directory that all of them see; the chief writes.

    Args:
        backup_dir: the directory for backups; nothing else may be in it.
        save_freq: ``"epoch"`` makes a backup after each epoch, a number after so many
            batches.
        double_checkpoint: whether the backup before the latest is kept as well, for
            the case that a file is damaged.
        delete_checkpoint: whether the directory is removed when `fit` is done.

    Raises:
        RuntimeError: Keras is loaded with another backend than JAX.
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        if (obstacle := scope.obstacle()) is not None:
            raise RuntimeError(obstacle)
        if not backup_dir:
            raise ValueError("Empty `backup_dir` argument passed")
        is_number = isinstance(save_freq, int) and not isinstance(save_freq, bool)
        if save_freq != "epoch" and not (is_number and int(save_freq) > 0):
            raise ValueError(
                f"Invalid value for argument `save_freq`. Received: save_freq="
                f"{save_freq}. Expected either 'epoch' or a positive integer."
            )
        self.backup_dir = os.fspath(backup_dir)
        self.save_freq = save_freq
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self._input: positions.PositionedAdapter | None = None
        self._since = self._at = self._epoch = 0
        self._is_due = False
        self._metrics: dict[str, np.ndarray] | None = None

    def _take_input(self, adapter: positions.PositionedAdapter) -> None:
        """Take what the `fit` that is about to begin reads from."""
        self._input = adapter

    # Restoring.

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restore the latest backup, if there is one."""
        if self._input is None:
            raise ValueError(
                f"The model {self.model.name!r} belongs to no strategy, so nobody "
                "tells the callback where `fit` is in its data. Make and compile the "
                "model inside `with strategy.scope():`; the default strategy, "
                "unisono.distribute.get_strategy(), has one too."
            )
        self._since, self._is_due, self._metrics = 0, False, None
        self.model._initial_epoch = None
        self._checkpoint: Any = checkpoints.Checkpoint(
            model=self.model,
            input=self._input,
            random=positions.Randomness(),
            seeds=seed_generator.global_seed_generator(),
            metrics=self._metric_values(),
            epoch=0,
            batch=0,
        )
        most = 2 if self.double_checkpoint else 1
        self._manager = manager.CheckpointManager(
            self._checkpoint, self.backup_dir, most, checkpoint_name="backup"
        )
        if self._restore():
            self._go_on()

    def _restore(self) -> bool:
        try:
            if self._manager.restore_or_initialize() is None:
                return False
            restored = self._checkpoint._restoration
            status.CheckpointLoadStatus(restored).expect_partial().assert_consumed()
        except (AssertionError, ValueError) as error:
            raise ValueError(
                f"The backup in {self.backup_dir} is not one of this model. Make and "
                "compile the model as the program did that saved it, or remove the "
                f"directory to begin anew. {error}"
            ) from None
        return True

    def _go_on(self) -> None:
        assert self._input is not None
        epoch, batch = self._checkpoint.epoch, self._checkpoint.batch
        is_open = self.params.get("steps") is None
        if batch and is_open and not self._input.has_next():
            # It ended with the batch of the backup, which could not be known then.
            epoch, batch = epoch + 1, 0
        self.model._initial_epoch = epoch
        self._input.done = batch
        if batch:
            self._metrics = self._checkpoint.metrics

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Give metrics the state that they had within the epoch."""
        self._epoch, self._at = epoch, 0
        self.model._initial_epoch = None
        values, self._metrics = self._metrics, None
        if values is not None:
            self._at = self._checkpoint.batch
            for name, variable in self._metric_variables().items():
                variable.assign(values[name])

    # Saving.

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Make a backup, if it is time."""
        done = batch + 1
        self._since += done - self._at
        self._at = done
        if self.save_freq == "epoch" or self._since < int(self.save_freq):
            return
        assert self._input is not None
        total = self._input.batches_in_epoch
        if total is not None and done >= total:
            # The end of the epoch is a better place to go on from.
            self._is_due = True
        else:
            self._save(self._epoch, done)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Make a backup, if it is time."""
        if self.save_freq == "epoch" or self._is_due:
            self._save(epoch + 1, 0)

    def _save(self, epoch: int, batch: int) -> None:
        self.model.jax_state_sync()
        self._since, self._is_due = 0, False
        self._checkpoint.epoch, self._checkpoint.batch = epoch, batch
        self._checkpoint.metrics = self._metric_values()
        self._manager.save()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Remove the backups, unless they are to be kept."""
        self.model._initial_epoch = None
        self._input = None
        if self.delete_checkpoint:
            meeting = worker_meeting.Meeting("the end of a fit with backups")
            meeting.finish()
            if worker_meeting.is_writer():
                shutil.rmtree(self.backup_dir, ignore_errors=True)

    # Metrics: `fit` resets them when an epoch begins, and they are sums over replicas.

    def _metric_variables(self) -> dict[str, Any]:
        named = saving.named(self.model.metrics)
        return {
            f"{name}/{i}": variable
            for name, metric in named.items()
            for i, variable in enumerate(metric.variables)
        }

    def _metric_values(self) -> dict[str, np.ndarray]:
        found = self._metric_variables().items()
        return {name: np.asarray(variable.value) for name, variable in found}


publish("unisono.keras.callbacks", BackupAndRestore)
