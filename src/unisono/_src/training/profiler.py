"""Profiles of a program, at the names of ``tf.profiler.experimental``."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, final

import jax

from unisono._src.execution import profile_names
from unisono._src.foundation import errors
from unisono._src.foundation.public_names import publish


@dataclasses.dataclass(frozen=True)
class ProfilerOptions:
    """What a profile records.

    Args:
        host_tracer_level: 0 nothing of the host, 1 what the user marks, 2 and 3 more.
        python_tracer_level: 1 records every call of Python, which is slow; 0 does not.
        device_tracer_level: accepted; devices are always recorded.
        delay_ms: accepted; recording starts at once.
    """

    host_tracer_level: int = 2
    python_tracer_level: int = 0
    device_tracer_level: int = 1
    delay_ms: int | None = None

    @property
    def _for_jax(self) -> Any:
        made = jax.profiler.ProfileOptions()
        made.host_tracer_level = self.host_tracer_level
        made.python_tracer_level = self.python_tracer_level
        return made


@final
class _Running:
    """Whether a profile is being taken."""

    is_on = False


def start(
    logdir: str | os.PathLike[str], options: ProfilerOptions | None = None
) -> None:
    """Start to record a profile of this process.

    Args:
        logdir: where `stop` writes it: ``plugins/profile/<time>`` below this directory.
        options: what to record.

    Raises:
        FailedPreconditionError: one is being recorded.
    """
    if _Running.is_on:
        raise errors.FailedPreconditionError(
            "Another profiler is running: call stop() before the next start()."
        )
    wanted = (options or ProfilerOptions())._for_jax
    jax.profiler.start_trace(os.fspath(logdir), profiler_options=wanted)
    _Running.is_on = True
    profile_names.start()


def stop(save: bool = True) -> None:
    """Stop recording and write the profile.

    Args:
        save: accepted; the profile is always written.

    Raises:
        FailedPreconditionError: none is being recorded.
    """
    if not _Running.is_on:
        raise errors.FailedPreconditionError(
            "Cannot export profiling results. No profiler is running: call start() "
            "first."
        )
    profile_names.stop()
    _Running.is_on = False
    jax.profiler.stop_trace()


class Profile:
    """A block of which a profile is recorded.

    Args:
        logdir: where it is written.
        options: what to record.
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
    """A block that has a name in profiles.

    Args:
        name: the name.
        **kwargs: numbers and texts to show with it. With ``step_num=n, _r=1`` the block
            is a step of training, by which profiles are cut.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self._is_step = bool(kwargs.pop("_r", 0))
        kind: Any = (
            jax.profiler.StepTraceAnnotation
            if self._is_step
            else jax.profiler.TraceAnnotation
        )
        self._annotation = kind(name, **kwargs)

    def __enter__(self) -> Trace:
        profile_names.enter_step(1 if self._is_step else 0)
        self._annotation.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._annotation.__exit__(*exc)
        profile_names.enter_step(-1 if self._is_step else 0)


publish("unisono.profiler.experimental", Profile, ProfilerOptions, Trace, start, stop)
