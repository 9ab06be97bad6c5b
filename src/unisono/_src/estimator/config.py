"""`RunConfig`: where and how an estimator runs."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from unisono._src.foundation.public_names import publish
from unisono._src.strategies.base import Strategy
from unisono._src.workers import process_group

_DEFAULT_SECONDS = 600
_UNSET: Any = "default"
_POSITIVE = (
    "save_summary_steps",
    "save_checkpoints_steps",
    "save_checkpoints_secs",
    "keep_checkpoint_max",
    "log_step_count_steps",
)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Where and how an estimator runs.

    Args:
        model_dir: where checkpoints go.
        tf_random_seed: for the model function, which finds it in its `config`.
        save_summary_steps: how often the loss goes to TensorBoard; None for never.
        save_checkpoints_steps: save after so many steps. Neither this nor the next is
            set: every 600 seconds; both None: only before and after training.
        save_checkpoints_secs: save after so many seconds.
        session_config: accepted; there are no sessions.
        keep_checkpoint_max: how many checkpoints to keep; None or 0 keeps all.
        keep_checkpoint_every_n_hours: of the others, keep one for good so often.
        log_step_count_steps: how often loss and speed are logged; None for never.
        train_distribute: the strategy to train under; default one device.
        eval_distribute: the strategy to evaluate under; default one device.
        keep_input_position: whether a checkpoint in mid-training has the position in
            the data, from which a training that was cut short goes on.

    Raises:
        ValueError: a number that is not positive, or two that contradict each other.
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _UNSET
    save_checkpoints_secs: float | None = _UNSET
    session_config: object = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float | None = 10000
    log_step_count_steps: int | None = 100
    train_distribute: Strategy | None = None
    eval_distribute: Strategy | None = None
    keep_input_position: bool = True

    def __post_init__(self) -> None:
        self._settle_saving()
        if self.keep_checkpoint_max == 0:
            object.__setattr__(self, "keep_checkpoint_max", None)
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} should be > 0, received {value!r}.")
        for name in ("train_distribute", "eval_distribute"):
            strategy = getattr(self, name)
            if strategy is not None and not hasattr(strategy, "extended"):
                raise TypeError(f"{name} must be a strategy, received {strategy!r}.")
        if self.model_dir is not None:
            object.__setattr__(self, "model_dir", os.fspath(self.model_dir))

    def _settle_saving(self) -> None:
        steps, seconds = self.save_checkpoints_steps, self.save_checkpoints_secs
        is_given = [x is not _UNSET and x is not None for x in (steps, seconds)]
        if all(is_given):
            raise ValueError(
                "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both "
                f"set; received {steps} and {seconds}."
            )
        is_unset = steps is _UNSET and seconds is _UNSET
        if seconds is _UNSET:
            seconds = _DEFAULT_SECONDS if is_unset else None
        object.__setattr__(self, "save_checkpoints_secs", seconds)
        if steps is _UNSET:
            object.__setattr__(self, "save_checkpoints_steps", None)

    def replace(self, **kwargs: Any) -> RunConfig:
        """A copy with some properties changed; one way of saving replaces the other."""
        known = {f.name for f in dataclasses.fields(self)}
        unknown = sorted(set(kwargs) - known)
        if unknown:
            raise ValueError(f"Replacing {unknown} is not supported: no such property.")
        steps, seconds = "save_checkpoints_steps", "save_checkpoints_secs"
        if kwargs.get(steps) is not None and seconds not in kwargs:
            kwargs[seconds] = None
        if kwargs.get(seconds) is not None and steps not in kwargs:
            kwargs[steps] = None
        return dataclasses.replace(self, **kwargs)

    # Which worker this is.

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes checkpoints and summaries."""
        return process_group.current().is_chief

    @property
    def task_type(self) -> str:
        """The job of this worker."""
        group = process_group.current()
        return group.tasks[group.index][0]

    @property
    def task_id(self) -> int:
        """The number of this worker in its job."""
        group = process_group.current()
        return group.tasks[group.index][1]

    @property
    def num_worker_replicas(self) -> int:
        """How many workers there are."""
        return process_group.current().size


publish("unisono.estimator", RunConfig)
