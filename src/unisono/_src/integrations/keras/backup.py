"""The callback `BackupAndRestore`, with which a stopped `fit` resumes."""

from __future__ import annotations

import os
import shutil
from typing import Any

import keras
import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.integrations.keras import (
    backend_choice,
    internals,
    positions,
    saving,
)
from unisono._src.integrations.keras.internals import KerasVariable
from unisono._src.saving.checkpoint import (
    checkpoint as checkpoints,
    manager,
    worker_meeting,
)


class BackupAndRestore(keras.callbacks.Callback):
    """Makes backups during `fit`, and resumes a stopped `fit` from the latest one.

    It works like `keras.callbacks.BackupAndRestore`, but can also resume in the middle
    of an epoch. A backup contains the weights, the optimizer, the states of metrics and
    random generators, and the position in the data. The final weights are therefore
    equal, bit for bit, to those of a `fit` that was never stopped. A backup is written
    completely before it replaces the previous one, so no backup is lost if the program
    is stopped in between.

    Create the model in the scope of a strategy. With several workers, every worker
    passes the callback, with a directory that all of them can read; the chief writes.

    Args:
        backup_dir: the directory for backups; keep nothing else in it.
        save_freq: ``"epoch"`` for a backup after each epoch, or the number of batches
            after which a backup is made.
        double_checkpoint: whether the backup before the latest one is kept as well, in
            case a file is damaged.
        delete_checkpoint: whether the directory is removed at the end of `fit`.

    Raises:
        RuntimeError: Keras runs on another backend than JAX.
        ValueError: `backup_dir` is empty, or `save_freq` has another value. `fit`
            raises it if the model was created outside a scope, or if the backup is of
            another model.

    >>> import keras, numpy as np, tempfile, unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> def fit(folder, epochs):
    ...     backup = BackupAndRestore(folder, delete_checkpoint=False)
    ...     with strategy.scope():
    ...         model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    ...         model.compile("sgd", "mse")
    ...     x = np.ones((4, 1))
    ...     return model.fit(x, x, 2, epochs, verbose=0, callbacks=[backup]).epoch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit(folder, epochs=1)  # A program that is stopped after one epoch,
    ...     fit(folder, epochs=2)  # and the same program, started again.
    [0]
    [1]
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        if (obstacle := backend_choice.find_obstacle()) is not None:
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
        self._input: positions.InputPosition | None = None
        # Batches since the last backup, batches done in this epoch, and the epoch.
        self._since = self._at = self._epoch = 0
        self._is_due = False
        self._metrics: dict[str, np.ndarray] | None = None

    def _take_input(self, adapter: positions.InputPosition) -> None:
        """Take the adapter from which the `fit` that is about to begin reads."""
        self._input = adapter

    # Restoring.

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restores the latest backup, if there is one.

        Raises:
            ValueError: the model was created outside a scope, or the backup is of
                another model.
        """
        if self._input is None:
            raise ValueError(
                f"The model {self.model.name!r} belongs to no strategy, so nobody "
                "tells the callback where `fit` is in its data. Make and compile the "
                "model inside `with strategy.scope():`; the default strategy, "
                "unisono.distribute.get_strategy(), has one too."
            )
        self._since, self._is_due, self._metrics = 0, False, None
        internals.set_first_epoch(self.model, None)
        self._checkpoint: Any = checkpoints.Checkpoint(
            model=self.model,
            input=self._input,
            random=positions.Randomness(),
            seeds=internals.seed_generator.global_seed_generator(),
            metrics=self._metric_values(),
            epoch=0,
            batch=0,
        )
        most = 2 if self.double_checkpoint else 1
        # A checkpoint of the program, in the same directory, is no backup.
        self._manager = manager.leave_others(
            manager.CheckpointManager(
                self._checkpoint, self.backup_dir, most, checkpoint_name="backup"
            )
        )
        if self._restore():
            self._resume()

    def _restore(self) -> bool:
        """Restore the latest backup, and return whether there was one."""
        try:
            if self._manager.restore_or_initialize() is None:
                return False
            # Every value must have found its object, and every object its value. The
            # error below says so; `expect_partial` avoids a warning beside it.
            restored = checkpoints.last_status(self._checkpoint)
            assert restored is not None
            restored.expect_partial().assert_consumed()
        except (AssertionError, ValueError) as error:
            raise ValueError(
                f"The backup in {self.backup_dir} is not one of this model. Make and "
                "compile the model as the program did that saved it, or remove the "
                f"directory to begin anew. {error}"
            ) from None
        return True

    def _resume(self) -> None:
        """Tell Keras and the adapter at which epoch and batch to begin."""
        assert self._input is not None
        epoch, batch = self._checkpoint.epoch, self._checkpoint.batch
        is_open = self.params.get("steps") is None
        if batch and is_open and not self._input.has_next():
            # The data ended with the batch of the backup. When the backup was made,
            # nobody knew that no other batch would come.
            epoch, batch = epoch + 1, 0
        internals.set_first_epoch(self.model, epoch)
        self._input.done = batch
        if batch:
            self._metrics = self._checkpoint.metrics

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Restores the states of metrics, if `fit` resumes within this epoch."""
        self._epoch, self._at = epoch, 0
        internals.set_first_epoch(self.model, None)
        values, self._metrics = self._metrics, None
        if values is not None:
            self._at = self._checkpoint.batch
            for name, variable in self._metric_variables().items():
                variable.assign(values[name])

    # Saving.

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Makes a backup, if the last one was `save_freq` batches ago."""
        # With `steps_per_execution` one call stands for several batches.
        done = batch + 1
        self._since += done - self._at
        self._at = done
        if self.save_freq == "epoch" or self._since < int(self.save_freq):
            return
        assert self._input is not None
        total = self._input.batches_in_epoch
        if total is not None and done >= total:
            # `on_epoch_end` comes next. A backup there resumes with a new epoch, and
            # has the validation of this one behind it.
            self._is_due = True
        else:
            self._save(self._epoch, done)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Makes a backup, if one is due at the end of an epoch."""
        if self.save_freq == "epoch" or self._is_due:
            self._save(epoch + 1, 0)

    def _save(self, epoch: int, batch: int) -> None:
        # While `fit` runs, its loop has the arrays; the checkpoint reads the variables.
        self.model.jax_state_sync()
        self._since, self._is_due = 0, False
        self._checkpoint.epoch, self._checkpoint.batch = epoch, batch
        self._checkpoint.metrics = self._metric_values()
        self._manager.save()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Removes the backups, if `delete_checkpoint` is set."""
        internals.set_first_epoch(self.model, None)
        self._input = None
        if self.delete_checkpoint:
            # First all workers must be here: one that fails before must find a backup.
            meeting = worker_meeting.Meeting("the end of a fit with backups")
            meeting.finish()
            if worker_meeting.is_writer():
                shutil.rmtree(self.backup_dir, ignore_errors=True)

    # Metrics are saved as whole values next to the model, not with it: `fit` resets
    # their variables when an epoch begins, and a sum that is divided among three
    # replicas would not come out the same. See docs/decisions/0020.

    def _metric_variables(self) -> dict[str, KerasVariable]:
        named = saving.name_objects(self.model.metrics)
        return {
            f"{name}/{i}": variable
            for name, metric in named.items()
            for i, variable in enumerate(metric.variables)
        }

    def _metric_values(self) -> dict[str, np.ndarray]:
        found = self._metric_variables().items()
        return {name: np.asarray(variable.value) for name, variable in found}


publish("unisono.keras.callbacks", BackupAndRestore)
