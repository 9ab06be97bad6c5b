"""Scalars for TensorBoard, at the names of ``tf.summary``."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex, final

import jax
import numpy as np

from unisono._src.execution import function
from unisono._src.foundation import ambient
from unisono._src.foundation.public_names import publish
from unisono._src.state.variables import Variable
from unisono._src.training.tensorboard import events
from unisono._src.values import array_operators
from unisono._src.values.distributed import PerReplica
from unisono._src.workers import process_group

# A point on a curve: a number, or a variable that counts.
Step = SupportsIndex | Variable

_DEFAULT_QUEUE = 10
_DEFAULT_MILLIS = 2 * 60 * 1000


@final
class _Current(ambient.PerThread):
    """Where summaries of a thread go, and for which step."""

    writer: SummaryWriter | None = None
    step: Step | None = None
    is_recording: Any = True


_current = _Current()


class SummaryWriter:
    """Writes to one directory; made by `create_file_writer`.

    Args:
        target: the file; None writes nothing.
    """

    def __init__(self, target: events.EventFile | None) -> None:
        self._target = target

    @contextlib.contextmanager
    def as_default(self, step: Step | None = None) -> Iterator[SummaryWriter]:
        """A block in which this thread's summaries go here; flushes at its end.

        Args:
            step: the default step in the block.
        """
        before = _current.writer, _current.step
        _current.writer = self
        _current.step = before[1] if step is None else step
        try:
            yield self
        finally:
            _current.writer, _current.step = before
            self.flush()

    def set_as_default(self, step: Step | None = None) -> None:
        """Let the summaries of this thread go to this writer from now on."""
        _current.writer = self
        if step is not None:
            _current.step = step

    def write_scalar(self, name: str, value: float, step: int) -> bool:
        """Write a number; returns whether it was written."""
        target = self._target
        if target is None:
            return False
        target.write(events.scalar(name, value, step))
        return True

    def flush(self) -> None:
        """Write what is waiting."""
        if self._target is not None:
            self._target.flush()

    def close(self) -> None:
        """Write what is waiting, and write nothing more."""
        target, self._target = self._target, None
        if target is not None:
            target.close()
        if _current.writer is self:
            _current.writer = None


def create_file_writer(
    logdir: str | os.PathLike[str],
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
    *,
    every_worker: bool = False,
) -> SummaryWriter:
    """A writer of a new file in a directory; on the first worker only.

    Args:
        logdir: the directory.
        max_queue: how many summaries may wait to be written.
        flush_millis: how long they may.
        filename_suffix: the end of the file's name.
        name: accepted, no effect.
        every_worker: whether the other workers write too; give each a directory of
            its own then.
    """
    if not every_worker and not process_group.current().is_chief:
        return create_noop_writer()
    return SummaryWriter(
        events.EventFile(
            os.fspath(logdir),
            filename_suffix or "",
            _DEFAULT_QUEUE if max_queue is None else max_queue,
            (_DEFAULT_MILLIS if flush_millis is None else flush_millis) / 1000,
        )
    )


def create_noop_writer() -> SummaryWriter:
    """A writer that writes nothing."""
    return SummaryWriter(None)


def scalar(
    name: str, data: Any, step: Step | None = None, description: str | None = None
) -> bool:
    """Write a number to this thread's default writer; waits until it has been computed.

    Args:
        name: the curve it belongs to.
        data: a number, an array with one element, a variable, a metric, or a function
            without arguments that returns one of them.
        step: the point on the curve; default that of `set_step` or `as_default`.
        description: accepted, no effect.

    Returns:
        Whether it was written: there is a default writer, and recording is on.

    Raises:
        ValueError: there is no step, or `data` is no number, or more than one.
        RuntimeError: called while a function is being compiled.
    """
    writer = _current.writer
    if writer is None or not should_record_summaries():
        return False
    step = _current.step if step is None else step
    if step is None:
        raise ValueError(
            "No step set. Please specify one either through the `step` argument or "
            "through unisono.summary.experimental.set_step()."
        )
    return writer.write_scalar(name, _number(name, data), int(_read(step)))


def _number(name: str, data: Any) -> float:
    if function.is_compiling() or isinstance(data, jax.core.Tracer):
        raise RuntimeError(
            f"The summary {name!r} was written while a function was being compiled, "
            "which happens once. Return the value from the function and write it "
            "where the function is called."
        )
    if isinstance(data, PerReplica):
        raise ValueError(
            f"The summary {name!r} has a value on each replica. Reduce it to one "
            'number first: strategy.reduce("MEAN", value, axis=None).'
        )
    value = _read(data)
    if value.size != 1:
        raise ValueError(
            f"The summary {name!r} is not a scalar: it has shape {value.shape}."
        )
    return _as_float(name, value.reshape(()))


def _as_float(name: str, value: np.ndarray) -> float:
    given = value.item()
    try:
        if not isinstance(given, str | bytes):
            return float(given)
    except OverflowError:
        # An integer of Python's, which may have any number of digits.
        return math.inf if given > 0 else -math.inf
    except (TypeError, ValueError):
        pass
    kind = type(given).__name__
    raise ValueError(f"The summary {name!r} is no number, received {kind}.")


def _read(x: Any) -> np.ndarray:
    own = array_operators.own(x)
    if isinstance(own, Variable):
        x = own.numpy()
    elif callable(getattr(x, "result", None)):
        # A metric: calling it would add to it.
        x = x.result()
    return np.asarray(x() if callable(x) else x)


def should_record_summaries() -> bool:
    """Whether summaries are written now: there is a writer, and recording is on."""
    if _current.writer is None:
        return False
    wanted = _current.is_recording
    return bool(wanted() if callable(wanted) else wanted)


@contextlib.contextmanager
def record_if(condition: bool | Callable[[], bool]) -> Iterator[None]:
    """A block in which summaries are written only if a condition holds.

    Args:
        condition: a bool, or a function without arguments that returns one.
    """
    before, _current.is_recording = _current.is_recording, condition
    try:
        yield
    finally:
        _current.is_recording = before


def flush(writer: SummaryWriter | None = None) -> None:
    """Let a writer, by default the default one, write what is waiting."""
    target = writer or _current.writer
    if target is not None:
        target.flush()


def get_step() -> Step | None:
    """The default step of this thread, or None."""
    return _current.step


def set_step(step: Step | None) -> None:
    """Set the default step of this thread: a number, or a variable that counts."""
    _current.step = step


publish(
    "unisono.summary",
    SummaryWriter,
    create_file_writer,
    create_noop_writer,
    flush,
    record_if,
    scalar,
    should_record_summaries,
)
publish("unisono.summary.experimental", get_step, set_step)
