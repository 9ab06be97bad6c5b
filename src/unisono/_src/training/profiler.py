"""Functions that record profiles, at the names of ``tf.profiler.experimental``."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import jax

from unisono._src.execution import profile_names
from unisono._src.foundation import errors


@dataclasses.dataclass(frozen=True)
class ProfilerOptions:
    """Settings for a profile.

    Args:
        host_tracer_level: 0 records nothing on the host, 1 the blocks that the program
            marks with `Trace`, 2 and 3 record more.
        python_tracer_level: 1 records every Python call, which is slow; 0 does not.
        device_tracer_level: accepted and ignored; devices are always recorded.
        delay_ms: accepted and ignored; recording starts immediately.

    >>> ProfilerOptions(python_tracer_level=1).host_tracer_level
    2
    """

    host_tracer_level: int = 2
    python_tracer_level: int = 0
    device_tracer_level: int = 1
    delay_ms: int | None = None


def _jax_options(options: ProfilerOptions) -> jax.profiler.ProfileOptions:
    """Returns the settings as JAX takes them."""
    made = jax.profiler.ProfileOptions()
    made.host_tracer_level = options.host_tracer_level
    made.python_tracer_level = options.python_tracer_level
    return made


def start(
    logdir: str | os.PathLike[str], options: ProfilerOptions | None = None
) -> None:
    """Starts to record a profile of this process.

    Args:
        logdir: the directory that `stop` writes to, below ``plugins/profile/<time>``.
        options: what to record; by default ``ProfilerOptions()``.

    Raises:
        FailedPreconditionError: a profile is already being recorded.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     start(folder)
    ...     _ = jax.numpy.ones(3).sum()
    ...     stop()
    ...     [x.name for x in pathlib.Path(folder).glob("plugins/*")]
    ['profile']
    """
    if profile_names.is_recording():
        raise errors.FailedPreconditionError(
            "Another profiler is running: call stop() before the next start()."
        )
    wanted = _jax_options(options or ProfilerOptions())
    jax.profiler.start_trace(os.fspath(logdir), profiler_options=wanted)
    profile_names.start()


def stop(save: bool = True) -> None:
    """Stops recording and writes the profile to the directory given to `start`.

    Args:
        save: accepted and ignored; the profile is always written.

    Raises:
        FailedPreconditionError: no profile is being recorded.

    >>> try:
    ...     stop()
    ... except errors.FailedPreconditionError as error:
    ...     print(error)
    Cannot export profiling results. No profiler is running: call start() first.
    """
    if not profile_names.is_recording():
        raise errors.FailedPreconditionError(
            "Cannot export profiling results. No profiler is running: call start() "
            "first."
        )
    profile_names.stop()
    jax.profiler.stop_trace()


class Profile:
    """A context manager that records a profile of its block.

    Args:
        logdir: the directory to write to, as for `start`.
        options: what to record; by default ``ProfilerOptions()``.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Profile(folder):
    ...         _ = jax.numpy.ones(3).sum()
    ...     [x.name for x in pathlib.Path(folder).glob("plugins/*")]
    ['profile']
    """

    def __init__(
        self, logdir: str | os.PathLike[str], options: ProfilerOptions | None = None
    ) -> None:
        self._logdir = logdir
        self._options = options

    def __enter__(self) -> None:
        start(self._logdir, self._options)

    def __exit__(self, *exc: Any) -> None:
        stop()


class Trace:
    """A context manager that gives its block a name in profiles.

    Args:
        name: the name.
        **kwargs: numbers and strings to show with it. With ``step_num=n, _r=1`` the
            block is a training step; profiles are divided into such steps.

    >>> with Trace("train", step_num=1, _r=1):
    ...     total = jax.numpy.ones(3).sum()
    >>> float(total)
    3.0
    """

    def __init__(self, name: str, **kwargs: object) -> None:
        self._is_step = bool(kwargs.pop("_r", 0))
        kind: Any = (
            jax.profiler.StepTraceAnnotation
            if self._is_step
            else jax.profiler.TraceAnnotation
        )
        self._annotation = kind(name, **kwargs)

    def __enter__(self) -> Trace:
        # Inside a step that the program marks, compiled functions are no steps.
        profile_names.enter_step(1 if self._is_step else 0)
        self._annotation.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._annotation.__exit__(*exc)
        profile_names.enter_step(-1 if self._is_step else 0)
