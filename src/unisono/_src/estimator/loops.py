"""Runs the steps of an estimator in training, evaluation and prediction."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import jax
import numpy as np

from unisono._src.estimator.checkpointing import Saver
from unisono._src.estimator.compiled_steps import Evaluation, Prediction, Training
from unisono._src.estimator.config import RunConfig
from unisono._src.estimator.hooks import Hooks, NanLossDuringTrainingError
from unisono._src.training import summary

_log = logging.getLogger("unisono")


@final
class TrainingLoop:
    """Trains until the data ends, the last step is made, or a hook asks to stop.

    Args:
        built: the `compiled_steps.Training` of the model.
        iterator: gives the batches.
        hooks: are called around each step.
        saver: saves checkpoints.
        config: says how often to log and to write summaries.
    """

    def __init__(
        self,
        built: Training,
        iterator: Iterator[object],
        hooks: Hooks,
        saver: Saver,
        config: RunConfig,
    ) -> None:
        self._built = built
        self._iterator = iterator
        self._hooks = hooks
        self._saver = saver
        self._config = config
        self._loss: jax.Array | None = None
        self._logged = (0, 0.0)
        self._summaries = Summaries(config, config.model_dir or "")

    def run(self, step: int, last: float) -> int:
        """Makes the steps.

        Args:
            step: the global step at which training begins.
            last: the global step at which it ends.

        Returns:
            The global step after the last step that was made.
        """
        self._logged = (step, time.perf_counter())
        try:
            return self._run(step, last)
        finally:
            self._summaries.close()

    def _run(self, step: int, last: float) -> int:
        while step < last:
            self._hooks.before_run()
            try:
                batch = next(self._iterator)
            except StopIteration:
                break
            # Not waited for: the device may be several steps behind. Whoever reads the
            # loss waits, so it is read only to log, to check and to save.
            self._loss = self._built.step(batch)
            step += 1
            self._report(step)
            wants_end = self._hooks.after_run({"loss": self._loss, "global_step": step})
            # The last step is not saved here: `Saver.end` saves it without a position.
            if step < last and not wants_end and self._saver.is_due(step):
                self.check_loss()
                wants_end = self._saver.save(step, is_mid_training=True)
            if wants_end:
                break
        self.check_loss()
        return step

    def check_loss(self) -> float | None:
        """Waits for the last step and returns its loss, or None before the first step.

        Raises:
            NanLossDuringTrainingError: the loss is not finite.
        """
        if self._loss is None:
            return None
        loss = float(self._loss)
        if not math.isfinite(loss):
            raise NanLossDuringTrainingError(
                f"NaN loss during training: the loss is {loss}. The checkpoints in "
                f"{self._config.model_dir} were saved while it was finite. Look for a "
                "learning rate that is too high or for wrong data, or add "
                "NanTensorHook() to find the step."
            )
        return loss

    def _report(self, step: int) -> None:
        if _is_due(step, self._config.log_step_count_steps):
            loss, now = self.check_loss(), time.perf_counter()
            rate = (step - self._logged[0]) / max(now - self._logged[1], 1e-9)
            self._logged = (step, now)
            _log.info("loss = %s, step = %d (%.3g steps/s)", loss, step, rate)
        if _is_due(step, self._config.save_summary_steps):
            self._summaries.write({"loss": self._loss}, step)


def _is_due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


def evaluate(built: Evaluation, batches: Iterable[object], hooks: Hooks) -> None:
    """Updates the metrics of an evaluation with batches.

    Args:
        built: the `compiled_steps.Evaluation` of the model.
        batches: the batches.
        hooks: are called around each step; a hook may end the loop.
    """
    for batch in batches:
        hooks.before_run()
        built.step(batch)
        if hooks.after_run({}):
            break


def predict(
    built: Prediction,
    batches: Iterable[object],
    hooks: Hooks,
    keys: Sequence[str] | str | None,
) -> Iterator[Any]:
    """Yields the predictions of each batch as NumPy arrays.

    Args:
        built: the `compiled_steps.Prediction` of the model.
        batches: the batches.
        hooks: are called around each step; a hook may end the loop.
        keys: the names of the predictions to yield; None or empty yields all.

    Raises:
        ValueError: the predictions have none of the keys, or have no names.
    """
    for batch in batches:
        hooks.before_run()
        found = _select_keys(jax.device_get(built.step(batch)), keys)
        wants_end = hooks.after_run(found)
        yield found
        if wants_end:
            break


def _select_keys(found: object, keys: Sequence[str] | str | None) -> object:
    if not keys:
        return found
    if not isinstance(found, dict):
        raise ValueError(
            "predict_keys argument is not valid in case of non-dict predictions. Leave "
            "it out, or let the model_fn return a dict of predictions."
        )
    chosen = {k: v for k, v in found.items() if k in keys}
    if not chosen:
        raise ValueError(
            f"Expected to run at least one output from {sorted(found)}, provided "
            f"{list(keys)}."
        )
    return chosen


def split_examples(batch: object) -> Iterator[Any]:
    """Yields the predictions of a batch example by example.

    Raises:
        ValueError: the predictions differ in length, or one has no first axis.
    """
    leaves = jax.tree.leaves(batch)
    sizes = {np.shape(x)[0] if np.shape(x) else None for x in leaves}
    if len(sizes) != 1 or None in sizes:
        raise ValueError(
            "Batch length of predictions should be same; their shapes are "
            f"{[np.shape(x) for x in leaves]}. Pass yield_single_examples=False."
        )
    for i in range(sizes.pop() or 0):
        yield jax.tree.map(lambda x, i=i: x[i], batch)


@final
class Summaries:
    """Writes scalars for TensorBoard, on the first worker.

    Args:
        config: says whether to write summaries.
        directory: the directory of the summaries.
    """

    def __init__(self, config: RunConfig, directory: str) -> None:
        self._is_wanted = config.save_summary_steps is not None and config.is_chief
        self._directory = directory
        self._writer: summary.SummaryWriter | None = None

    def write(self, values: Mapping[str, Any], step: int) -> None:
        """Writes those of the values that are scalars."""
        if not self._is_wanted:
            return
        # Made with the first value, so that a loop without any makes no file.
        if self._writer is None:
            self._writer = summary.create_file_writer(self._directory)
        for name, value in values.items():
            if np.ndim(value) == 0:
                self._writer.write_scalar(name, float(value), step)

    def close(self) -> None:
        """Closes the file, if one was made."""
        if self._writer is not None:
            self._writer.close()
