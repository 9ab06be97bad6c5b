"""Writes summaries to TensorBoard's event files: scalars, and what others encode."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex, final

import jax
import numpy as np

from unisono._src.execution import function, program_checks, signature
from unisono._src.foundation import ambient, messages
from unisono._src.input.sources import files
from unisono._src.state import frames
from unisono._src.state.variables import Variable
from unisono._src.values import array_operators
from unisono._src.values.distributed import PerReplica
from unisono._src.workers import process_group

# A point on a curve: a number, or a variable that counts steps.
Step = SupportsIndex | Variable
# Whether to record: a bool, or an array of one, which a program may compute.
_Condition = bool | jax.Array

# TensorFlow's defaults.
_DEFAULT_QUEUE = 10
_DEFAULT_MILLIS = 2 * 60 * 1000


# Numbers the files of this process: two may be made in the same second.
_numbers = itertools.count()


@final
class _ThreadSettings(ambient.PerThread):
    """The default writer and step of a thread, and whether it records."""

    writer: SummaryWriter | None = None
    step: Step | None = None
    is_recording: _Condition | Callable[[], _Condition] = True


_current = _ThreadSettings()


class SummaryWriter:
    """Writes summaries to a file; `create_file_writer` creates one.

    Args:
        target: the file; None writes nothing.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = create_file_writer(folder)
    ...     with writer.as_default(step=1):
    ...         scalar("loss", 0.5)
    ...     writer.close()
    ...     len(list(pathlib.Path(folder).glob("events.out.tfevents.*")))
    True
    1
    """

    def __init__(self, target: EventFile | None) -> None:
        self._target = target

    @contextlib.contextmanager
    def as_default(self, step: Step | None = None) -> Iterator[SummaryWriter]:
        """Makes this the default writer of the thread for a block, then flushes it.

        Args:
            step: the default step in the block; None does not change it.

        >>> with create_noop_writer().as_default(step=7):
        ...     get_step()
        7
        >>> get_step() is None
        True
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
        """Makes this the default writer of the thread from now on.

        Args:
            step: the new default step; None does not change it.

        >>> writer = create_noop_writer()
        >>> writer.set_as_default(step=3)
        >>> get_step(), should_record_summaries()
        (3, True)
        >>> writer.close()
        >>> set_step(None)
        """
        _current.writer = self
        if step is not None:
            _current.step = step

    def write_scalar(self, name: str, value: float, step: int) -> bool:
        """Writes a number.

        Args:
            name: the name of the curve to which the number belongs.
            value: the number.
            step: the step of the number on the curve.

        Returns:
            Whether the number was written. It is not if the writer is closed or has no
            file.

        >>> create_noop_writer().write_scalar("loss", 0.5, step=1)
        False
        """
        target = self._target
        if target is None:
            return False
        target.write(encode_scalar(name, value, step))
        return True

    def write_tensor(
        self, name: str, tensor: bytes, metadata: bytes, step: int
    ) -> bool:
        """Writes an array, for example images or text.

        Args:
            name: the name of the summary to which the array belongs.
            tensor: a ``TensorProto`` as bytes, as `io.serialize_tensor` returns it.
            metadata: a ``SummaryMetadata`` as bytes; it names the TensorBoard plugin.
            step: the training step.

        Returns:
            Whether the array was written, as for `write_scalar`.

        >>> create_noop_writer().write_tensor("images", b"", b"", step=1)
        False
        """
        target = self._target
        if target is None:
            return False
        value = {"tag": name, "tensor": tensor, "metadata": metadata}
        target.write(_event(step=step, summary={"value": [value]}))
        return True

    def flush(self) -> None:
        """Writes the buffered summaries to the file.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     writer = create_file_writer(folder)
        ...     (file,) = pathlib.Path(folder).iterdir()
        ...     size = file.stat().st_size
        ...     written = writer.write_scalar("loss", 0.5, step=1)
        ...     writer.flush()
        ...     grown = file.stat().st_size > size
        ...     writer.close()
        >>> written, grown
        (True, True)
        """
        if self._target is not None:
            self._target.flush()

    def close(self) -> None:
        """Writes the buffered summaries and closes the file; drops later ones.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     writer = create_file_writer(folder)
        ...     writer.close()
        ...     writer.write_scalar("loss", 0.5, step=1)
        False
        """
        # First, so that another thread writes nothing to a file that is being closed.
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
    """Creates a writer to a new file in a directory, on the first worker only.

    Args:
        logdir: the directory, which is created if it does not exist.
        max_queue: the number of summaries that are buffered at most; by default 10.
        flush_millis: how many milliseconds they are buffered at most; by default two
            minutes.
        filename_suffix: the end of the file's name.
        name: accepted and ignored.
        every_worker: whether all workers write. If so, use a different directory on
            each of them.

    Returns:
        A `SummaryWriter`. On other workers it writes nothing.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     create_file_writer(folder, filename_suffix=".train").close()
    ...     [file.suffix for file in pathlib.Path(folder).iterdir()]
    ['.train']
    """
    if not every_worker and not process_group.current().is_chief:
        return create_noop_writer()
    return SummaryWriter(
        EventFile(
            os.fspath(logdir),
            filename_suffix or "",
            _DEFAULT_QUEUE if max_queue is None else max_queue,
            (_DEFAULT_MILLIS if flush_millis is None else flush_millis) / 1000,
        )
    )


def create_noop_writer() -> SummaryWriter:
    """Creates a writer that writes nothing.

    >>> with create_noop_writer().as_default(step=1):
    ...     scalar("loss", 0.5)
    False
    """
    return SummaryWriter(None)


def scalar(
    name: str, data: object, step: Step | None = None, description: str | None = None
) -> bool:
    """Waits for a number and writes it with this thread's default writer.

    In a compiled function, the number is written each time the function runs, by the
    writer that was the default when the function was traced. Each call then waits until
    the function has run. Inside `Strategy.run`, only the first replica of a worker
    writes; to write the value of all replicas, reduce it first.

    Args:
        name: the name of the curve, to which the current name scopes are prepended.
        data: a number, an array with one element, a variable, a metric, or a function
            without arguments that returns one of them.
        step: the step of the number on the curve; by default the step of `set_step` or
            `as_default`.
        description: accepted and ignored.

    Returns:
        Whether the number was written; see `should_record_summaries`. In a compiled
        function, whether it can be written.

    Raises:
        ValueError: no step is set, or `data` is not a single number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = create_file_writer(folder)
    ...     with writer.as_default():
    ...         written = [scalar("loss", 1.0 / n, step=n) for n in (1, 2)]
    ...     writer.close()
    >>> written, scalar("loss", 1.0, step=3)  # There is no default writer now.
    ([True, True], False)
    """
    tag = _find_tag(name)

    def write(writer: SummaryWriter, value: np.ndarray, at: int) -> bool:
        return writer.write_scalar(tag, _as_float(name, value.reshape(())), at)

    def find() -> np.ndarray | jax.Array:
        value = _value(name, data)
        if value.size != 1:
            raise ValueError(
                f"The summary {name!r} is not a scalar: it has shape {value.shape}. "
                "Reduce it to one number, for example by jnp.mean."
            )
        return value

    return _record("summary.scalar", find, step, write)


def write_encoded(
    name: str,
    data: object,
    step: Step | None,
    encode: Callable[[np.ndarray], tuple[bytes, bytes]],
) -> bool:
    """Writes an array to this thread's default writer, as `scalar` does a number.

    Args:
        name: the name of the summary.
        data: an array, or what else `scalar` takes.
        step: the point of training, or None for the default.
        encode: makes the tensor and the metadata of `SummaryWriter.write_tensor` of it.

    Returns:
        Whether it was written.
    """
    tag = _find_tag(name)

    def write(writer: SummaryWriter, value: np.ndarray, at: int) -> bool:
        return writer.write_tensor(tag, *encode(value), at)

    return _record("summary", lambda: _value(name, data), step, write)


def _record(
    title: str,
    find: Callable[[], np.ndarray | jax.Array],
    step: Step | None,
    write: Callable[[SummaryWriter, np.ndarray, int], bool],
) -> bool:
    """Writes a summary now, or each time that the program being traced runs.

    Args:
        title: the public name, for the log.
        find: returns the value.
        step: the point of training, or None for the default.
        write: writes the value at a step.
    """
    writer, wanted = _current.writer, should_record_summaries()
    if writer is None or wanted is False:
        return False
    given: list[Any] = [wanted, _find_step(step), find()]
    given = [frames.strip_gradient(x) for x in given]
    first, replica = _find_replica()
    given.append(replica)
    # Only what a program computes: texts are no arrays of JAX.
    places = [i for i, x in enumerate(given) if isinstance(x, jax.core.Tracer)]

    def run(*computed: np.ndarray) -> bool:
        values = list(given)
        for i, x in zip(places, computed, strict=True):
            values[i] = x
        wanted, at, value, replica = values
        if not wanted or int(replica) != first:
            return False
        return write(writer, np.asarray(value), int(at))

    if not places and not function.is_compiling():
        return run()
    program_checks.call_each_run(title, run, [given[i] for i in places])
    return True


def _find_tag(name: str) -> str:
    """Returns the name of a summary behind those of the name scopes around it."""
    return f"{ambient.current().names}{name}"


def _find_step(step: Step | None) -> Any:
    """Returns the given step, or the default one."""
    step = _current.step if step is None else step
    if step is None:
        raise ValueError(
            "No step set. Please specify one either through the `step` argument or "
            "through unisono.summary.experimental.set_step()."
        )
    return _read(step)


def _value(name: str, data: object) -> np.ndarray | jax.Array:
    """Returns the value of a summary, or raises if there is not one."""
    if isinstance(data, PerReplica):
        raise ValueError(
            f"The summary {name!r} has a value on each replica. Reduce it to one "
            'first: strategy.reduce("MEAN", value, axis=None).'
        )
    return _read(data)


def _as_float(name: str, value: np.ndarray) -> float:
    """Returns a value as a float; integers beyond its range are infinite."""
    given = value.item()
    try:
        if not isinstance(given, str | bytes):
            return float(given)
    except OverflowError:
        # Python's integers may have any number of digits.
        return math.inf if given > 0 else -math.inf
    except (TypeError, ValueError):
        # Refused below, like texts, which `float` would parse.
        pass
    kind = type(given).__name__
    raise ValueError(f"The summary {name!r} is no number, received {kind}.")


def _read(x: object) -> np.ndarray | jax.Array:
    """Returns the value of a number, variable, metric or function as an array."""
    own = array_operators.find_own_variable(x)
    # A metric has a result: calling the metric itself would add to it.
    result = getattr(x, "result", None)
    if isinstance(own, Variable):
        x = own.value() if function.is_compiling() else own.numpy()
    elif callable(result):
        x = result()
    x = signature.read_variable(x() if callable(x) else x)
    return x if isinstance(x, jax.core.Tracer) else np.asarray(x)


def should_record_summaries() -> _Condition:
    """Whether this thread writes summaries: it has a writer, and recording is on.

    Inside `Strategy.run`, only the first replica of a worker writes, as in TensorFlow.
    In a compiled function, the result is an array if the function computes the
    condition.

    >>> with create_noop_writer().as_default():
    ...     should_record_summaries()
    True
    >>> should_record_summaries()
    False
    """
    first, replica = _find_replica()
    is_other = not isinstance(replica, jax.core.Tracer) and int(replica) != first
    if _current.writer is None or is_other:
        return False
    wanted = _current.is_recording
    found = signature.read_variable(wanted() if callable(wanted) else wanted)
    return found if isinstance(found, jax.core.Tracer) else bool(found)


def _find_replica() -> tuple[int, int | jax.Array]:
    """Returns the number of the worker's first replica, and that of the running one.

    Both are zero outside of replicas. The second may be known to the program only.
    """
    frame = ambient.current()
    if frame.replica is None or frame.placement is None:
        return 0, 0
    # Replicas are counted over all workers.
    return frame.placement.topology.first, frame.replica.replica_id_in_sync_group


@contextlib.contextmanager
def record_if(condition: _Condition | Callable[[], _Condition]) -> Iterator[None]:
    """Writes the summaries of a block only if a condition holds.

    Args:
        condition: a bool or a boolean array with one element, or a function without
            arguments that returns one of them. A compiled function can compute it.

    >>> with create_noop_writer().as_default(step=5):
    ...     with record_if(lambda: get_step() % 10 == 0):
    ...         should_record_summaries()
    False
    """
    before, _current.is_recording = _current.is_recording, condition
    try:
        yield
    finally:
        _current.is_recording = before


def flush(writer: SummaryWriter | None = None) -> None:
    """Writes the buffered summaries of a writer to its file.

    Args:
        writer: the writer; by default the default writer of this thread, if any.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = create_file_writer(folder)
    ...     (file,) = pathlib.Path(folder).iterdir()
    ...     size = file.stat().st_size
    ...     _ = writer.write_scalar("loss", 0.5, step=1)
    ...     flush(writer)
    ...     grown = file.stat().st_size > size
    ...     writer.close()
    >>> grown
    True
    """
    target = writer or _current.writer
    if target is not None:
        target.flush()


def get_step() -> Step | None:
    """Returns the default step of this thread, or None.

    >>> set_step(4)
    >>> get_step()
    4
    >>> set_step(None)
    """
    return _current.step


def set_step(step: Step | None) -> None:
    """Sets the default step of this thread.

    Args:
        step: a number, a variable that counts steps, or None for no default.

    >>> import unisono
    >>> step = unisono.Variable(0)
    >>> set_step(step)
    >>> _ = step.assign_add(1)
    >>> int(get_step().numpy())
    1
    >>> set_step(None)
    """
    _current.step = step


# Event files: TFRecord files with a protocol buffer in each record.


@functools.cache
def _message() -> Any:
    """Returns the class of events, with the fields that summaries need."""
    return messages.make_classes(
        Event="optional double wall_time = 1; optional int64 step = 2;"
        "optional string file_version = 3; optional Summary summary = 5",
        Summary="repeated Value value = 1",
        # The last two are messages, which have the form of bytes.
        Value="optional string tag = 1; optional float simple_value = 2;"
        "optional bytes tensor = 8; optional bytes metadata = 9",
    )["Event"]


def _event(**fields: object) -> bytes:
    """Returns an event of now as bytes."""
    made: bytes = _message()(wall_time=time.time(), **fields).SerializeToString()
    return made


def encode_scalar(name: str, value: float, step: int) -> bytes:
    """Returns the event that says that `name` has a value at a step.

    The file keeps values in single precision; larger ones become infinite.
    """
    return _event(step=step, summary={"value": [{"tag": name, "simple_value": value}]})


@final
class EventFile:
    """A new file of events in a directory, for any number of threads.

    Args:
        directory: the directory, which is made if it does not exist.
        suffix: the end of the file's name.
        most: the number of events that may wait to be written.
        seconds: the time that they may wait.
    """

    def __init__(self, directory: str, suffix: str, most: int, seconds: float) -> None:
        folder = pathlib.Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        made = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        name = f"events.out.tfevents.{made}.{next(_numbers)}{suffix}"
        # Reentrant: `write` holds it when it calls `flush`.
        self._lock = threading.RLock()
        self._file = files.TFRecordWriter(folder / name)
        self._most, self._seconds = most, seconds
        self._waiting, self._flushed = 0, time.monotonic()
        # TensorBoard expects this as the first record.
        self._file.write(_event(file_version="brain.Event:2"))
        self.flush()

    def write(self, event: bytes) -> None:
        """Appends an event, and flushes if too many wait or for too long."""
        with self._lock:
            self._file.write(event)
            self._waiting += 1
            is_late = time.monotonic() >= self._flushed + self._seconds
            if self._waiting >= self._most or is_late:
                self.flush()

    def flush(self) -> None:
        """Hands the waiting events to the operating system."""
        with self._lock:
            self._file.flush()
            self._waiting, self._flushed = 0, time.monotonic()

    def close(self) -> None:
        """Writes the waiting events and closes the file."""
        with self._lock:
            self._file.close()
