"""What a program may do around the steps of an estimator: hooks and listeners."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, final

from unisono._src.foundation.public_names import publish


class NanLossDuringTrainingError(RuntimeError):
    """The loss is not a number any more."""

    def __str__(self) -> str:
        return super().__str__() or "NaN loss during training."


@dataclasses.dataclass(frozen=True)
class SessionRunValues:
    """What a step has given.

    Attributes:
        results: in training ``{"loss": array, "global_step": int}``; in evaluation and
            prediction ``{}`` and the predictions. Reading an array waits for the step.
    """

    results: Any


class SessionRunContext:
    """Lets a hook end the loop."""

    def __init__(self) -> None:
        self._stop = False

    @property
    def session(self) -> None:
        """None: there are no sessions."""
        return None

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has asked to end the loop."""
        return self._stop

    def request_stop(self) -> None:
        """End the loop after this step. With several workers all must ask at once."""
        self._stop = True


class SessionRunHook:
    """Called around the steps of an estimator; override what you need.

    There are no graphs and sessions: where TensorFlow passes one, None is passed.
    """

    def begin(self) -> None:
        """Called once, before the variables have values."""

    def after_create_session(self, session: None, coord: None) -> None:
        """Called once, when the variables have their first or restored values."""

    def before_run(self, run_context: SessionRunContext) -> None:
        """Called before each step."""

    def after_run(
        self, run_context: SessionRunContext, run_values: SessionRunValues
    ) -> None:
        """Called after each step has been started."""

    def end(self, session: None) -> None:
        """Called once, after the last step; not after an error."""


class StopAtStepHook(SessionRunHook):
    """Ends training after some steps, or at some step.

    Args:
        num_steps: how many steps to make from where training starts.
        last_step: at which global step to end.
    """

    def __init__(
        self, num_steps: int | None = None, last_step: int | None = None
    ) -> None:
        if (num_steps is None) == (last_step is None):
            raise ValueError("Exactly one of num_steps or last_step must be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    def after_run(
        self, run_context: SessionRunContext, run_values: SessionRunValues
    ) -> None:
        """End the loop if it is time."""
        step = run_values.results["global_step"]
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = step - 1 + self._num_steps
        if step >= self._last_step:
            run_context.request_stop()


class NanTensorHook(SessionRunHook):
    """Looks at the loss after every step, which waits for the step.

    Without it the estimator looks when it logs and before it saves.

    Args:
        loss_tensor: accepted; the loss of the step is looked at.
        fail_on_nan_loss: whether to raise, or only to end training.
    """

    def __init__(
        self, loss_tensor: object = None, fail_on_nan_loss: bool = True
    ) -> None:
        self._fails = fail_on_nan_loss

    def after_run(
        self, run_context: SessionRunContext, run_values: SessionRunValues
    ) -> None:
        """Look at the loss.

        Raises:
            NanLossDuringTrainingError: it is not a number.
        """
        if math.isfinite(float(run_values.results["loss"])):
            return
        if self._fails:
            raise NanLossDuringTrainingError()
        run_context.request_stop()


class CheckpointSaverListener:
    """Called around every save of a training; override what you need."""

    def begin(self) -> None:
        """Called once, before training."""

    def before_save(self, session: None, global_step_value: int) -> None:
        """Called before a checkpoint is saved."""

    def after_save(self, session: None, global_step_value: int) -> bool | None:
        """Called when a checkpoint is safe; True ends training."""
        return None

    def end(self, session: None, global_step_value: int) -> None:
        """Called once, after the last save."""


_Kind = TypeVar("_Kind", SessionRunHook, CheckpointSaverListener)
_ARGUMENTS = {SessionRunHook: "All hooks", CheckpointSaverListener: "saving_listeners"}


def checked(given: Iterable[Any] | None, kind: type[_Kind]) -> list[_Kind]:
    """A list of what was given, all of one kind.

    Raises:
        TypeError: something is not of that kind.
    """
    found = list(given or ())
    for each in found:
        if not isinstance(each, kind):
            raise TypeError(
                f"{_ARGUMENTS[kind]} must be {kind.__name__} instances, given: "
                f"{each!r}."
            )
    return found


@final
class Hooks:
    """The hooks of one loop, called together."""

    def __init__(self, hooks: Iterable[Any] | None) -> None:
        self._hooks = checked(hooks, SessionRunHook)
        self._has_begun = False
        self.context = SessionRunContext()

    def add(self, more: Sequence[SessionRunHook]) -> None:
        """Add those that the model function gave; they begin with the others."""
        for hook in more:
            if hook in self._hooks:
                continue
            self._hooks.append(hook)
            if self._has_begun:
                hook.begin()

    def begin(self) -> None:
        """Before the variables are there."""
        self._has_begun = True
        for hook in self._hooks:
            hook.begin()

    def ready(self) -> None:
        """When they are."""
        for hook in self._hooks:
            hook.after_create_session(None, None)

    def before_run(self) -> None:
        """Before a step."""
        for hook in self._hooks:
            hook.before_run(self.context)

    def after_run(self, results: Any) -> bool:
        """After a step; returns whether one wants to stop."""
        for hook in self._hooks:
            hook.after_run(self.context, SessionRunValues(results))
        return self.context.stop_requested

    def end(self) -> None:
        """After the last step."""
        for hook in self._hooks:
            hook.end(None)


publish(
    "unisono.estimator",
    CheckpointSaverListener,
    NanLossDuringTrainingError,
    NanTensorHook,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopAtStepHook,
)
