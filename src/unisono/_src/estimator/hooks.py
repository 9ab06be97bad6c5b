"""Defines hooks and listeners, which an estimator calls around its steps and saves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, final


class NanLossDuringTrainingError(RuntimeError):
    """Raised if the loss of a training step is not finite.

    >>> import unisono as uni
    >>> hook = uni.estimator.NanTensorHook()
    >>> values = uni.estimator.SessionRunValues({"loss": float("nan")})
    >>> hook.after_run(uni.estimator.SessionRunContext(), values)
    Traceback (most recent call last):
        ...
    unisono.estimator.NanLossDuringTrainingError: NaN loss during training.
    """

    def __str__(self) -> str:
        return super().__str__() or "NaN loss during training."


@dataclasses.dataclass(frozen=True)
class SessionRunValues:
    """Holds the results of a step, for `SessionRunHook.after_run`.

    Attributes:
        results: ``{"loss": array, "global_step": int}`` in training, ``{}`` in
            evaluation, and the predictions in `predict`. Reading an array waits until
            the step is computed.

    >>> import unisono as uni
    >>> uni.estimator.SessionRunValues({"loss": 0.5, "global_step": 3}).results["loss"]
    0.5
    """

    results: Any


class SessionRunContext:
    """Lets a hook end training, evaluation or prediction.

    >>> import unisono as uni
    >>> context = uni.estimator.SessionRunContext()
    >>> context.stop_requested
    False
    >>> context.request_stop()
    >>> context.stop_requested
    True
    """

    def __init__(self) -> None:
        self._stop = False

    @property
    def session(self) -> None:
        """Always None, because there are no sessions."""
        return None

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has called `request_stop`."""
        return self._stop

    def request_stop(self) -> None:
        """Ends the loop after this step.

        With several workers, all of them must call this after the same step.
        """
        self._stop = True


class SessionRunHook:
    """The base class of hooks, whose methods an estimator calls around the steps.

    There are no sessions: where TensorFlow passes a session, hooks get None.

    >>> import tempfile
    >>> import unisono as uni
    >>> class LossHook(uni.estimator.SessionRunHook):
    ...     losses = []
    ...
    ...     def after_run(self, run_context, run_values):
    ...         self.losses.append(run_values.results["loss"])
    >>> def model_fn(features, mode):
    ...     return uni.estimator.EstimatorSpec(
    ...         mode, loss=features.sum(), train_op=lambda: None
    ...     )
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     estimator = uni.estimator.Estimator(model_fn, directory)
    ...     _ = estimator.train(
    ...         lambda: uni.data.Dataset.range(4).batch(2), [LossHook()]
    ...     )
    >>> [float(loss) for loss in LossHook.losses]
    [1.0, 5.0]
    """

    def begin(self) -> None:
        """Called once, before the variables get their initial or restored values."""

    def after_create_session(self, session: None, coord: None) -> None:
        """Called once, after the variables have their initial or restored values."""

    def before_run(self, run_context: SessionRunContext) -> None:
        """Called before each step."""

    def after_run(
        self, run_context: SessionRunContext, run_values: SessionRunValues
    ) -> None:
        """Called after each step was started; the device may still be computing it."""

    def end(self, session: None) -> None:
        """Called once, after the last step, unless there was an error."""


class StopAtStepHook(SessionRunHook):
    """Ends training after a number of steps or at a global step.

    Args:
        num_steps: the number of steps, counted from where training starts.
        last_step: the global step at which to stop.

    Raises:
        ValueError: neither or both of the arguments are given.

    >>> import unisono as uni
    >>> hook = uni.estimator.StopAtStepHook(num_steps=2)
    >>> context = uni.estimator.SessionRunContext()
    >>> for step in (11, 12):  # Training starts after step 10.
    ...     hook.after_run(
    ...         context, uni.estimator.SessionRunValues({"global_step": step})
    ...     )
    ...     print(context.stop_requested)
    False
    True
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
        """Stops the loop if this was the last step."""
        step = run_values.results["global_step"]
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = step - 1 + self._num_steps
        if step >= self._last_step:
            run_context.request_stop()


class NanTensorHook(SessionRunHook):
    """Waits for every step, and checks that its loss is finite.

    Without this hook the estimator checks the loss when it logs it and before it saves.

    Args:
        loss_tensor: accepted and ignored; the loss of the step is checked.
        fail_on_nan_loss: whether to raise an error; if False, training only ends.

    >>> import unisono as uni
    >>> hook = uni.estimator.NanTensorHook(fail_on_nan_loss=False)
    >>> context = uni.estimator.SessionRunContext()
    >>> hook.after_run(context, uni.estimator.SessionRunValues({"loss": 0.5}))
    >>> context.stop_requested
    False
    >>> hook.after_run(context, uni.estimator.SessionRunValues({"loss": float("inf")}))
    >>> context.stop_requested
    True
    """

    def __init__(
        self, loss_tensor: object = None, fail_on_nan_loss: bool = True
    ) -> None:
        self._fails = fail_on_nan_loss

    def after_run(
        self, run_context: SessionRunContext, run_values: SessionRunValues
    ) -> None:
        """Checks the loss of the step.

        Raises:
            NanLossDuringTrainingError: the loss is not finite.
        """
        if math.isfinite(float(run_values.results["loss"])):
            return
        if self._fails:
            raise NanLossDuringTrainingError()
        run_context.request_stop()


class CheckpointSaverListener:
    """The base class of listeners, whose methods are called around every save.

    >>> import tempfile
    >>> import unisono as uni
    >>> class Steps(uni.estimator.CheckpointSaverListener):
    ...     saved = []
    ...
    ...     def after_save(self, session, global_step_value):
    ...         self.saved.append(global_step_value)
    >>> def model_fn(features, mode):
    ...     return uni.estimator.EstimatorSpec(mode, loss=0.0, train_op=lambda: None)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     estimator = uni.estimator.Estimator(model_fn, directory)
    ...     input_fn = lambda: uni.data.Dataset.range(6).batch(2)
    ...     _ = estimator.train(input_fn, saving_listeners=[Steps()])
    >>> Steps.saved
    [0, 3]
    """

    def begin(self) -> None:
        """Called once, before training."""

    def before_save(self, session: None, global_step_value: int) -> None:
        """Called before a checkpoint is saved."""

    def after_save(self, session: None, global_step_value: int) -> bool | None:
        """Called after a checkpoint was saved; returning True ends training."""
        return None

    def end(self, session: None, global_step_value: int) -> None:
        """Called once, after the last save of a training run."""


_Kind = TypeVar("_Kind", SessionRunHook, CheckpointSaverListener)
_ARGUMENTS = {SessionRunHook: "All hooks", CheckpointSaverListener: "saving_listeners"}


def check_kind(given: Iterable[object] | None, kind: type[_Kind]) -> list[_Kind]:
    """Returns hooks or listeners as a list, and checks that all are of one kind.

    Raises:
        TypeError: one of them is not an instance of `kind`.
    """
    found: list[_Kind] = []
    for each in given or ():
        if not isinstance(each, kind):
            raise TypeError(
                f"{_ARGUMENTS[kind]} must be {kind.__name__} instances, given: "
                f"{each!r}."
            )
        found.append(each)
    return found


@final
class Hooks:
    """Calls all hooks of one loop.

    Args:
        hooks: the hooks that the program passed.

    Raises:
        TypeError: one of them is not a `SessionRunHook`.
    """

    def __init__(self, hooks: Iterable[object] | None) -> None:
        self._hooks = check_kind(hooks, SessionRunHook)
        self._has_begun = False
        self.context = SessionRunContext()

    def add(self, more: Sequence[SessionRunHook]) -> None:
        """Adds the hooks of the model function, each once, and lets them begin."""
        for hook in more:
            if hook in self._hooks:
                continue
            self._hooks.append(hook)
            if self._has_begun:
                hook.begin()

    def begin(self) -> None:
        """Calls `begin` of every hook."""
        self._has_begun = True
        for hook in self._hooks:
            hook.begin()

    def after_create_session(self) -> None:
        """Calls `after_create_session` of every hook."""
        for hook in self._hooks:
            hook.after_create_session(None, None)

    def before_run(self) -> None:
        """Calls `before_run` of every hook."""
        for hook in self._hooks:
            hook.before_run(self.context)

    def after_run(self, results: object) -> bool:
        """Calls `after_run` of every hook, and returns whether one wants to stop."""
        for hook in self._hooks:
            hook.after_run(self.context, SessionRunValues(results))
        return self.context.stop_requested

    def end(self) -> None:
        """Calls `end` of every hook."""
        for hook in self._hooks:
            hook.end(None)
