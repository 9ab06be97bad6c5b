"""`train_and_evaluate`: training that stops to look how good the model is."""

from __future__ import annotations

import abc
import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any, final

from unisono._src.estimator import checkpointing
from unisono._src.estimator import hooks as hooks_lib
from unisono._src.estimator.estimator import Estimator
from unisono._src.foundation.public_names import publish
from unisono._src.workers import process_group


class Exporter(abc.ABC):
    """Exports a model after an evaluation; abstract."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The directory of the exports below ``export`` in `model_dir`."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        """Export, or not; returns the directory of the model."""


class _ModelExporter(Exporter):
    """Exports the model of a checkpoint, if it is time; abstract.

    Args:
        name: the directory of the exports.
        serving_input_receiver_fn: says what the exported model takes.
    """

    def __init__(self, name: str, serving_input_receiver_fn: Callable[[], Any]) -> None:
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        # How many exports to keep; None keeps all.
        self._keep: int | None = None

    @property
    def name(self) -> str:
        """The directory of the exports."""
        return self._name

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        """Export if it is time; returns the directory of the model."""
        if not self._is_time(is_the_final_export):
            return None
        made = estimator.export_saved_model(
            export_path, self._receiver_fn, checkpoint_path=checkpoint_path
        )
        self._clean(export_path)
        return made

    @abc.abstractmethod
    def _is_time(self, is_the_end: bool) -> bool:
        """Whether to export after this evaluation."""

    def _clean(self, export_path: str) -> None:
        """Remove all but the newest exports, if a number was given."""
        if self._keep is not None and process_group.current().is_chief:
            there = sorted(
                (d for d in os.listdir(export_path) if d.isdecimal()), key=int
            )
            for old in there[: -self._keep]:
                shutil.rmtree(os.path.join(export_path, old))


class LatestExporter(_ModelExporter):
    """Exports after every evaluation, and keeps the newest few.

    Args:
        name: the directory of the exports.
        serving_input_receiver_fn: says what the exported model takes.
        exports_to_keep: how many to keep; None keeps all.
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
    """Exports once, at the end.

    Args:
        name: the directory of the export.
        serving_input_receiver_fn: says what the exported model takes.
    """

    def _is_time(self, is_the_end: bool) -> bool:
        return is_the_end


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """How to train.

    Args:
        input_fn: as in `Estimator.train`.
        max_steps: at which global step to end; default when the data ends.
        hooks: `SessionRunHook`s.
        saving_listeners: `CheckpointSaverListener`s.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Any] | None = None
    saving_listeners: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _check_function(self.input_fn)
        if self.max_steps is not None and self.max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {self.max_steps}.")
        hooks_lib.checked(self.hooks, hooks_lib.SessionRunHook)
        hooks_lib.checked(self.saving_listeners, hooks_lib.CheckpointSaverListener)


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """How to evaluate in between.

    Args:
        input_fn: as in `Estimator.evaluate`.
        steps: how many steps; None for all of the data.
        name: tells several evaluations apart.
        hooks: `SessionRunHook`s.
        exporters: one `Exporter` or several.
        start_delay_secs: no evaluation before so many seconds of training.
        throttle_secs: none before so many seconds after the last; there is one at the
            end in any case, and none without a new checkpoint.
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
        hooks_lib.checked(self.hooks, hooks_lib.SessionRunHook)
        given = [self.exporters] if isinstance(self.exporters, Exporter) else None
        found = tuple(given or self.exporters or ())
        if not all(isinstance(x, Exporter) for x in found):
            raise TypeError(f"exporters must be Exporter instances, given: {found}.")
        names = [x.name for x in found]
        if len(set(names)) < len(names):
            raise ValueError(f"Exporters need names of their own, given: {names}.")
        object.__setattr__(self, "exporters", found)


def _check_function(input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn!r}.")


@final
class _Evaluator(hooks_lib.CheckpointSaverListener):
    """Evaluates checkpoints as they come, but for those before and after training.

    Args:
        estimator: the estimator.
        spec: how to evaluate.
        start: the step that training begins at.
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
        # What the last save has is evaluated and exported when training has returned.
        is_known = global_step_value in (self._start, self.step)
        if self.is_over or is_known:
            return None
        if _all_agree(time.monotonic() >= self._next):
            self.evaluate(global_step_value, is_last=False)
        return None

    def evaluate(self, step: int, is_last: bool) -> None:
        """Evaluate the newest checkpoint, then export."""
        if step != self.step:
            spec = self._spec
            self.result = self._estimator.evaluate(
                spec.input_fn, spec.steps, spec.hooks, name=spec.name
            )
        self.step, self._next = step, time.monotonic() + self._spec.throttle_secs
        path = self._estimator._checkpoint_or_latest(None)
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
class _Ending(hooks_lib.SessionRunHook):
    """Tells an evaluator that there are no more steps; the last save is still to come.

    Args:
        evaluator: whom to tell.
    """

    def __init__(self, evaluator: _Evaluator) -> None:
        self._evaluator = evaluator

    def end(self, session: None) -> None:
        self._evaluator.is_over = True


def _all_agree(answer: bool) -> bool:
    if process_group.current().size == 1:
        return answer
    return checkpointing.chief_says(answer, "evaluate the checkpoint")


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any], list[str | None]]:
    """Train, and evaluate the checkpoints that training saves.

    How often that is, is a matter of `RunConfig.save_checkpoints_steps` or
    ``_secs`` and `EvalSpec.throttle_secs`. With several workers all of them call this
    and evaluate together.

    Args:
        estimator: the estimator.
        train_spec: how to train.
        eval_spec: how to evaluate.

    Returns:
        The metrics of the last evaluation, and what the exporters returned for it.
    """
    for given, kind in ((train_spec, TrainSpec), (eval_spec, EvalSpec)):
        if not isinstance(given, kind):
            raise TypeError(
                f"Expected a {kind.__name__}, received {type(given).__name__}."
            )
    if not isinstance(estimator, Estimator):
        raise TypeError(f"Expected an Estimator, received {type(estimator).__name__}.")
    before = checkpointing.step_of(estimator._checkpoint_or_latest(None))
    evaluator = _Evaluator(estimator, eval_spec, before)
    listeners = [*(train_spec.saving_listeners or ()), evaluator]
    estimator.train(
        train_spec.input_fn,
        hooks=[*(train_spec.hooks or ()), _Ending(evaluator)],
        max_steps=train_spec.max_steps,
        saving_listeners=listeners,
    )
    latest = estimator._checkpoint_or_latest(None)
    evaluator.evaluate(checkpointing.step_of(latest), is_last=True)
    return evaluator.result, evaluator.exports


publish(
    "unisono.estimator",
    EvalSpec,
    Exporter,
    FinalExporter,
    LatestExporter,
    TrainSpec,
    train_and_evaluate,
)
