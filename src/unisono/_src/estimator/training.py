"""Defines `train_and_evaluate`, which evaluates and exports a model as it trains."""

from __future__ import annotations

import abc
import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any, final

from unisono._src.estimator import checkpointing, hooks as hooks_lib
from unisono._src.estimator.estimator import Estimator
from unisono._src.workers import process_group


class Exporter(abc.ABC):
    """Exports a model after an evaluation; abstract.

    >>> import unisono as uni
    >>> class BelowOne(uni.estimator.Exporter):
    ...     name = "below_one"
    ...
    ...     def export(self, estimator, export_path, checkpoint_path, eval_result, end):
    ...         return export_path if eval_result["loss"] < 1 else None
    >>> exporter = BelowOne()
    >>> exporter.export(None, "export/below_one", "model.ckpt-3", {"loss": 0.5}, False)
    'export/below_one'
    >>> exporter.export(None, "export/below_one", "model.ckpt-2", {"loss": 2.0}, False)
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the directory for the exports, in ``export`` in `model_dir`."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        """Exports the model of a checkpoint, unless the exporter decides not to.

        Args:
            estimator: the estimator.
            export_path: the directory for the exports of this exporter.
            checkpoint_path: the checkpoint that was evaluated.
            eval_result: the metrics of the evaluation, by name.
            is_the_final_export: whether training has ended.

        Returns:
            The directory of the exported model; None if nothing was exported.
        """


class _ModelExporter(Exporter):
    """Exports the model after some of the evaluations; abstract.

    Args:
        name: the name of the directory for the exports.
        serving_input_receiver_fn: returns the inputs of the exported model.
    """

    def __init__(self, name: str, serving_input_receiver_fn: Callable[[], Any]) -> None:
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        # How many exports to keep; None keeps all.
        self._keep: int | None = None

    @property
    def name(self) -> str:
        """The name of the directory for the exports."""
        return self._name

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        """Exports the model if this exporter exports after this evaluation.

        Args:
            estimator: the estimator.
            export_path: the directory for the exports of this exporter.
            checkpoint_path: the checkpoint that was evaluated.
            eval_result: the metrics of the evaluation, by name; not used.
            is_the_final_export: whether training has ended.

        Returns:
            The directory of the exported model; None if nothing was exported.
        """
        if not self._is_time(is_the_final_export):
            return None
        made = estimator.export_saved_model(
            export_path, self._receiver_fn, checkpoint_path=checkpoint_path
        )
        self._remove_old_exports(export_path)
        return made

    @abc.abstractmethod
    def _is_time(self, is_the_end: bool) -> bool:
        """Whether to export after this evaluation."""

    def _remove_old_exports(self, export_path: str) -> None:
        """Removes all but the newest exports, if `exports_to_keep` was given."""
        if self._keep is not None and process_group.current().is_chief:
            # Exports are named by their time, so the largest number is the newest.
            there = sorted(
                (d for d in os.listdir(export_path) if d.isdecimal()), key=int
            )
            for old in there[: -self._keep]:
                shutil.rmtree(os.path.join(export_path, old))


class LatestExporter(_ModelExporter):
    """Exports the model after every evaluation and keeps the newest exports.

    Args:
        name: the name of the directory for the exports.
        serving_input_receiver_fn: returns the inputs of the exported model.
        exports_to_keep: how many exports to keep; None keeps all.

    Raises:
        ValueError: `exports_to_keep` is not positive.

    >>> import os, tempfile
    >>> import numpy as np, unisono as uni
    >>> export = uni.estimator.export
    >>> receiver_fn = export.build_raw_serving_input_receiver_fn(np.float32([0]))
    >>> def model_fn(features, mode):
    ...     return uni.estimator.EstimatorSpec(mode, features, 0.0, lambda: None)
    >>> exporter = uni.estimator.LatestExporter("newest", receiver_fn, 1)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     estimator = uni.estimator.Estimator(model_fn, directory)
    ...     _ = estimator.train(lambda: uni.data.Dataset.range(2).batch(1))
    ...     path = estimator.latest_checkpoint()
    ...     first = exporter.export(estimator, f"{directory}/e", path, {}, False)
    ...     second = exporter.export(estimator, f"{directory}/e", path, {}, False)
    ...     print(os.path.exists(first), os.path.exists(second))
    False True
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn)
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError(
                f"`exports_to_keep`, if provided, must be positive, got "
                f"{exports_to_keep}."
            )
        self._keep = exports_to_keep

    def _is_time(self, is_the_end: bool) -> bool:
        return True


class FinalExporter(_ModelExporter):
    """Exports the model once, after the evaluation at the end of training.

    Args:
        name: the name of the directory for the export.
        serving_input_receiver_fn: returns the inputs of the exported model.

    >>> import numpy as np, unisono as uni
    >>> export = uni.estimator.export
    >>> receiver_fn = export.build_raw_serving_input_receiver_fn(np.float32([0]))
    >>> exporter = uni.estimator.FinalExporter("last", receiver_fn)
    >>> exporter.name
    'last'
    >>> exporter.export(None, "export/last", "model.ckpt-3", {}, False) is None
    True
    """

    def _is_time(self, is_the_end: bool) -> bool:
        return is_the_end


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """Says how `train_and_evaluate` trains.

    Args:
        input_fn: as in `Estimator.train`.
        max_steps: the global step at which to stop; by default training ends when the
            data ends.
        hooks: `SessionRunHook`s to call around the steps.
        saving_listeners: `CheckpointSaverListener`s to call around each save.

    Raises:
        ValueError: `max_steps` is not positive.
        TypeError: `input_fn`, a hook or a listener has the wrong type.

    >>> import unisono as uni
    >>> def input_fn():
    ...     return uni.data.Dataset.range(4).batch(2)
    >>> uni.estimator.TrainSpec(input_fn, max_steps=1000).max_steps
    1000
    >>> uni.estimator.TrainSpec(input_fn())
    Traceback (most recent call last):
        ...
    TypeError: `input_fn` must be callable, given: ...
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Any] | None = None
    saving_listeners: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _check_function(self.input_fn)
        if self.max_steps is not None and self.max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {self.max_steps}.")
        hooks_lib.check_kind(self.hooks, hooks_lib.SessionRunHook)
        hooks_lib.check_kind(self.saving_listeners, hooks_lib.CheckpointSaverListener)


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """Says how `train_and_evaluate` evaluates.

    Some of the checkpoints that training saves are evaluated, and always the last one.

    Args:
        input_fn: as in `Estimator.evaluate`.
        steps: the number of steps of each evaluation; None evaluates all of the data.
        name: the name of the evaluation, to distinguish several.
        hooks: `SessionRunHook`s to call around the steps.
        exporters: one `Exporter` or several.
        start_delay_secs: the minimum number of seconds before the first evaluation.
        throttle_secs: the minimum number of seconds between two evaluations.

    Raises:
        ValueError: a number is not allowed, or two exporters have the same name.
        TypeError: `input_fn`, a hook or an exporter has the wrong type.

    >>> import unisono as uni
    >>> def input_fn():
    ...     return uni.data.Dataset.range(4).batch(2)
    >>> spec = uni.estimator.EvalSpec(input_fn, steps=None, throttle_secs=60)
    >>> spec.throttle_secs, spec.start_delay_secs, spec.exporters
    (60, 120, ())
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[Any] | None = None
    exporters: Any = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        _check_function(self.input_fn)
        if self.steps is not None and self.steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {self.steps}.")
        for name in ("start_delay_secs", "throttle_secs"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"Must specify {name} >= 0, given: {getattr(self, name)}."
                )
        hooks_lib.check_kind(self.hooks, hooks_lib.SessionRunHook)
        given = [self.exporters] if isinstance(self.exporters, Exporter) else None
        found = tuple(given or self.exporters or ())
        if not all(isinstance(x, Exporter) for x in found):
            raise TypeError(f"exporters must be Exporter instances, given: {found}.")
        names = [x.name for x in found]
        if len(set(names)) < len(names):
            raise ValueError(
                f"Each exporter must have a name that no other has, given: {names}."
            )
        object.__setattr__(self, "exporters", found)


def _check_function(input_fn: object) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn!r}.")


@final
class _Evaluator(hooks_lib.CheckpointSaverListener):
    """Evaluates the checkpoints that are saved in the midst of training.

    Args:
        estimator: the estimator.
        spec: says how to evaluate.
        start: the global step at which training begins.

    Attributes:
        is_over: whether there are no more steps.
        step: the global step of the checkpoint that was evaluated last.
        result: the metrics of the last evaluation.
        exports: the results of the exporters after the last evaluation.
    """

    def __init__(self, estimator: Estimator, spec: EvalSpec, start: int) -> None:
        self._estimator = estimator
        self._spec = spec
        self._start = start
        self._next = time.monotonic() + spec.start_delay_secs
        self.is_over = False
        self.step: int | None = None
        self.result: dict[str, Any] = {}
        self.exports: list[str | None] = []

    def after_save(self, session: None, global_step_value: int) -> bool | None:
        # The checkpoint after the last step is not evaluated here but when `train` has
        # returned, because that evaluation is the final export.
        is_known = global_step_value in (self._start, self.step)
        if self.is_over or is_known:
            return None
        if _ask_chief(time.monotonic() >= self._next):
            self.evaluate(global_step_value, is_last=False)
        return None

    def evaluate(self, step: int, is_last: bool) -> None:
        """Evaluates the newest checkpoint, unless that was done, and exports it.

        Args:
            step: the global step of the checkpoint.
            is_last: whether training has ended.
        """
        # The last save may be the one that was evaluated already; it is still
        # exported, because now it is final.
        if step != self.step:
            spec = self._spec
            self.result = self._estimator.evaluate(
                spec.input_fn, spec.steps, spec.hooks, name=spec.name
            )
        self.step, self._next = step, time.monotonic() + self._spec.throttle_secs
        path = checkpointing.find_latest_of_chief(self._estimator.model_dir)
        assert path is not None
        self.exports = [
            exporter.export(
                self._estimator,
                os.path.join(self._estimator.model_dir, "export", exporter.name),
                path,
                self.result,
                is_last,
            )
            for exporter in self._spec.exporters
        ]


@final
class _EndOfStepsHook(hooks_lib.SessionRunHook):
    """Tells an evaluator that there are no more steps.

    Hooks end before the last save, and the evaluator must not evaluate that one.

    Args:
        evaluator: the evaluator to tell.
    """

    def __init__(self, evaluator: _Evaluator) -> None:
        self._evaluator = evaluator

    def end(self, session: None) -> None:
        self._evaluator.is_over = True


def _ask_chief(answer: bool) -> bool:
    if process_group.current().size == 1:
        return answer
    return checkpointing.ask_chief(answer, "evaluate the checkpoint")


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any], list[str | None]]:
    """Trains a model and evaluates the checkpoints that training saves.

    `RunConfig.save_checkpoints_steps` or ``_secs`` and `EvalSpec.throttle_secs`
    determine how often it evaluates. With several workers, all of them must call this;
    they evaluate together.

    Args:
        estimator: the estimator.
        train_spec: how to train.
        eval_spec: how to evaluate.

    Returns:
        The metrics of the last evaluation, and a list of the results of the exporters.

    Raises:
        TypeError: an argument has the wrong type.

    >>> import tempfile
    >>> import unisono as uni
    >>> def model_fn(features, mode):
    ...     return uni.estimator.EstimatorSpec(mode, None, features.sum(), lambda: None)
    >>> def input_fn():
    ...     return uni.data.Dataset.range(6).batch(2)
    >>> train_spec = uni.estimator.TrainSpec(input_fn, max_steps=2)
    >>> eval_spec = uni.estimator.EvalSpec(input_fn, steps=None)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     estimator = uni.estimator.Estimator(model_fn, directory)
    ...     args = estimator, train_spec, eval_spec
    ...     metrics, exports = uni.estimator.train_and_evaluate(*args)
    >>> metrics["global_step"], float(metrics["loss"]), exports
    (2, 5.0, [])
    """
    for given, kind in ((train_spec, TrainSpec), (eval_spec, EvalSpec)):
        if not isinstance(given, kind):
            raise TypeError(
                f"Expected a {kind.__name__}, received {type(given).__name__}."
            )
    if not isinstance(estimator, Estimator):
        raise TypeError(f"Expected an Estimator, received {type(estimator).__name__}.")
    # The checkpoint that training begins with is not evaluated anew.
    before = checkpointing.step_of(
        checkpointing.find_latest_of_chief(estimator.model_dir)
    )
    evaluator = _Evaluator(estimator, eval_spec, before)
    listeners = [*(train_spec.saving_listeners or ()), evaluator]
    estimator.train(
        train_spec.input_fn,
        hooks=[*(train_spec.hooks or ()), _EndOfStepsHook(evaluator)],
        max_steps=train_spec.max_steps,
        saving_listeners=listeners,
    )
    latest = checkpointing.find_latest_of_chief(estimator.model_dir)
    evaluator.evaluate(checkpointing.step_of(latest), is_last=True)
    return evaluator.result, evaluator.exports
