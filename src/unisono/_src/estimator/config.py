"""Defines `RunConfig`, which says where and how an estimator runs."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from unisono._src.strategies.base import Strategy
from unisono._src.workers import process_group

_DEFAULT_SECONDS = 600
# None means "never", so another value must say that an argument was not given.
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
    """Says where and how an estimator runs.

    Args:
        model_dir: the directory for checkpoints.
        tf_random_seed: a seed that the model function can read from its `config`.
        save_summary_steps: how often to write the loss for TensorBoard, in steps; None
            writes nothing.
        save_checkpoints_steps: how often to save a checkpoint, in steps.
        save_checkpoints_secs: how often to save a checkpoint, in seconds; 600 if
            neither this nor `save_checkpoints_steps` is given. If both are None,
            checkpoints are saved only before and after training.
        session_config: accepted and ignored; there are no sessions.
        keep_checkpoint_max: how many checkpoints to keep; None or 0 keeps all.
        keep_checkpoint_every_n_hours: keep one checkpoint for every period of this many
            hours, instead of removing it.
        log_step_count_steps: how often to log the loss and the speed, in steps; None
            logs nothing.
        train_distribute: the strategy to train under; by default one device.
        eval_distribute: the strategy to evaluate under; by default one device.
        keep_input_position: whether a checkpoint that is saved during training contains
            the position in the data, so that an interrupted training run resumes there.

    Raises:
        ValueError: a number is not positive, or both `save_checkpoints_steps` and
            `save_checkpoints_secs` are given.
        TypeError: `train_distribute` or `eval_distribute` is not a strategy.

    >>> import unisono as uni
    >>> strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> config = uni.estimator.RunConfig(
    ...     save_checkpoints_steps=50, train_distribute=strategy
    ... )
    >>> config.save_checkpoints_steps, config.save_checkpoints_secs
    (50, None)
    >>> config.train_distribute.num_replicas_in_sync
    2
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
        # The class is frozen, so defaults are filled in past its `__setattr__`.
        self._resolve_saving()
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

    def _resolve_saving(self) -> None:
        steps, seconds = self.save_checkpoints_steps, self.save_checkpoints_secs
        is_given = [x is not _UNSET and x is not None for x in (steps, seconds)]
        if all(is_given):
            raise ValueError(
                "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both "
                f"set; received {steps} and {seconds}."
            )
        is_unset = steps is _UNSET and seconds is _UNSET
        # The default of ten minutes holds only if neither of the two was given.
        if seconds is _UNSET:
            seconds = _DEFAULT_SECONDS if is_unset else None
        object.__setattr__(self, "save_checkpoints_secs", seconds)
        if steps is _UNSET:
            object.__setattr__(self, "save_checkpoints_steps", None)

    def replace(self, **kwargs: object) -> RunConfig:
        """Returns a copy with some properties changed.

        Setting `save_checkpoints_steps` unsets `save_checkpoints_secs`, and the other
        way round.

        Args:
            **kwargs: the new values, by the name of the property.

        Raises:
            ValueError: no property has that name, or its value is not allowed.

        >>> import unisono as uni
        >>> config = uni.estimator.RunConfig(save_checkpoints_secs=60)
        >>> changed = config.replace(save_checkpoints_steps=10, model_dir="runs")
        >>> changed.save_checkpoints_steps, changed.save_checkpoints_secs
        (10, None)
        >>> changed.model_dir, config.model_dir
        ('runs', None)
        """
        known = {f.name for f in dataclasses.fields(self)}
        unknown = sorted(set(kwargs) - known)
        if unknown:
            raise ValueError(
                f"Replacing {unknown} is not supported: a RunConfig has the properties "
                f"{sorted(known)}."
            )
        steps, seconds = "save_checkpoints_steps", "save_checkpoints_secs"
        if kwargs.get(steps) is not None and seconds not in kwargs:
            kwargs[seconds] = None
        if kwargs.get(seconds) is not None and steps not in kwargs:
            kwargs[steps] = None
        changed: Any = kwargs
        return dataclasses.replace(self, **changed)

    # Which worker this is.

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes checkpoints and summaries."""
        return process_group.current().is_chief

    @property
    def task_type(self) -> str:
        """The job of this worker in the cluster, such as ``worker``."""
        group = process_group.current()
        return group.tasks[group.index][0]

    @property
    def task_id(self) -> int:
        """The index of this worker in its job."""
        group = process_group.current()
        return group.tasks[group.index][1]

    @property
    def num_worker_replicas(self) -> int:
        """The number of workers in the cluster."""
        return process_group.current().size
