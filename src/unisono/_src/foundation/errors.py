"""Exception types with their codes, and error messages that several modules share."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Self, TypeVar, final

from unisono._src.foundation.public_names import publish

OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15
UNAUTHENTICATED = 16


_E = TypeVar("_E", bound=BaseException)


def add_section(error: _E, section: str) -> _E:
    """Returns the error with a note that names a section of the documentation.

    Tracebacks show the note; the message stays as it is.

    >>> add_section(ValueError("It is 3."), "Mixed strategies").__notes__
    ['See "Errors: Mixed strategies" in the documentation of unisono.']
    """
    error.add_note(_note(section))
    return error


def _note(section: str) -> str:
    return f'See "Errors: {section}" in the documentation of unisono.'


@final
class _NoteOfClass:
    """Makes an exception's notes, with its section, when they are first looked for.

    An exception that is caught thus costs nothing more. It is no data descriptor, so
    that the list, once made, is an attribute of the exception like any other, to which
    `add_note` appends.
    """

    def __get__(
        self, error: BaseException | None, kind: type[BaseException]
    ) -> list[str]:
        if error is None:
            raise AttributeError("__notes__")  # A class has none, only its exceptions.
        # The nearest public class: a private subclass has no section of its own.
        public = next(c for c in kind.__mro__ if c.__module__ == "unisono.errors")
        notes = vars(error)["__notes__"] = [_note(public.__name__)]
        return notes


def publish_errors(*kinds: type[BaseException]) -> None:
    """Makes exceptions public, and lets their tracebacks name their section."""
    publish("unisono.errors", *kinds)
    for kind in kinds:
        if kind.__base__ not in kinds:  # Others inherit it.
            kind.__notes__ = _NoteOfClass()  # type: ignore[assignment]


class OpError(Exception):
    """The base class of the errors of TensorFlow's operations, which have a code.

    Your program can raise them with a message, or with the three arguments
    ``(node_def, op, message)``, as in TensorFlow.

    Attributes:
        error_code: the number of the kind of error, such as
            ``unisono.errors.NOT_FOUND``.
        node_def: the argument; None in errors that unisono raises.
        op: the argument; None in errors that unisono raises.

    >>> import unisono
    >>> try:
    ...     raise unisono.errors.AbortedError(None, None, "Two steps met.")
    ... except unisono.errors.OpError as error:
    ...     print(error, error.error_code == unisono.errors.ABORTED)
    Two steps met. True
    """

    error_code = UNKNOWN
    node_def: object = None
    op: object = None

    # `OSError` reads its arguments here, other exceptions in `__init__`.
    def __new__(cls, *args: object, **kwargs: object) -> Self:
        return super().__new__(cls, *_own_arguments(args, kwargs))

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*_own_arguments(args, kwargs))
        if _are_of_tensorflow(args):
            self.node_def, self.op = args[:2]
        if type(self) is OpError and len(args) > _CODE:
            self.error_code = args[_CODE]  # type: ignore[assignment]
        for name in kwargs.keys() & {"node_def", "op", "error_code"}:
            setattr(self, name, kwargs[name])

    @property
    def message(self) -> str:
        """The message of the error."""
        return str(self.args[0]) if self.args else ""

    @property
    def experimental_payloads(self) -> dict[str, str]:
        """Always empty; in TensorFlow, kernels can add data to an error."""
        return {}

    def __str__(self) -> str:
        return self.message


# Where TensorFlow's `OpError` has its code among its arguments.
_CODE = 3


def _are_of_tensorflow(args: Sequence[object]) -> bool:
    """Whether arguments of an error are TensorFlow's: a node, an operation and text."""
    return len(args) >= _CODE and not isinstance(args[0], str)


def _own_arguments(
    args: tuple[object, ...], named: Mapping[str, object]
) -> tuple[object, ...]:
    """Returns the arguments of the Python exception that an `OpError` is, too."""
    if _are_of_tensorflow(args):
        return (args[2],)
    return (named["message"],) if not args and "message" in named else args


class InvalidArgumentError(OpError, ValueError):
    """An argument or value is not allowed, such as shapes that differ between replicas.

    >>> import unisono
    >>> try:
    ...     unisono.data.Dataset.range(3).batch(0)
    ... except unisono.errors.InvalidArgumentError as error:
    ...     print(error)
    batch_size must be greater than zero, received 0.
    """

    error_code = INVALID_ARGUMENT


class FailedPreconditionError(OpError, RuntimeError):
    """The state that an operation needs does not exist.

    For example, a variable has lost its value in a failed step, or a dataset does not
    have the expected number of elements:

    >>> import unisono
    >>> expect = unisono.data.experimental.assert_cardinality(3)
    >>> try:
    ...     list(unisono.data.Dataset.range(2).apply(expect))
    ... except unisono.errors.FailedPreconditionError as error:
    ...     print(error)
    Input dataset was expected to contain 3 elements, but contained 2.
    """

    error_code = FAILED_PRECONDITION


class OutOfRangeError(OpError, IndexError):
    """A read went past the end of the data.

    >>> import unisono
    >>> iterator = iter(unisono.data.Dataset.range(1))
    >>> int(iterator.get_next())
    0
    >>> try:
    ...     iterator.get_next()
    ... except unisono.errors.OutOfRangeError as error:
    ...     print(error)
    End of sequence.
    """

    error_code = OUT_OF_RANGE


class NotFoundError(OpError, FileNotFoundError):
    """A file, a checkpoint, or an entry of a checkpoint does not exist.

    >>> import unisono
    >>> try:
    ...     unisono.train.Checkpoint().read("backups/ckpt-1")
    ... except unisono.errors.NotFoundError as error:
    ...     print(error)
    There is no checkpoint ...backups/ckpt-1. Please double-check the path...
    """

    error_code = NOT_FOUND


class AlreadyExistsError(OpError, FileExistsError):
    """A file or folder that should be created already exists.

    >>> import os, unisono
    >>> try:
    ...     unisono.io.gfile.mkdir(os.devnull)
    ... except unisono.errors.AlreadyExistsError as error:
    ...     print(error)
    /dev/null; File exists
    """

    error_code = ALREADY_EXISTS


class DataLossError(OpError, ValueError):
    """A file or checkpoint is damaged, or is not of the expected kind.

    >>> import tempfile, unisono
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"no record")
    ...     file.flush()
    ...     try:
    ...         list(unisono.data.TFRecordDataset(file.name))
    ...     except unisono.errors.DataLossError as error:
    ...         print(str(error).rpartition(": ")[2])
    the file ends 7 bytes before the record does.
    """

    error_code = DATA_LOSS


class UnavailableError(OpError, RuntimeError):
    """A parameter server, or a worker of a `ClusterCoordinator`, was lost.

    Attributes:
        task_type: ``"ps"`` or ``"worker"``; ``"chief"`` if the whole cluster was lost.
        task_index: the index of the server or worker.

    >>> try:
    ...     raise UnavailableError("Server 1 is gone.", "ps", 1)
    ... except UnavailableError as error:
    ...     print(error, error.task_type, error.task_index)
    Server 1 is gone. ps 1
    """

    error_code = UNAVAILABLE
    task_type = "worker"
    task_index = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        names = ("task_type", "task_index")
        if not _are_of_tensorflow(args):
            kwargs |= dict(zip(names, args[1:], strict=False))
        vars(self).update({n: kwargs[n] for n in names if n in kwargs})


class CancelledError(OpError, RuntimeError):
    """A scheduled function did not run, because another one failed.

    >>> try:
    ...     raise CancelledError("Please reschedule the function.")
    ... except CancelledError as error:
    ...     print(error)
    Please reschedule the function.
    """

    error_code = CANCELLED


class DeadlineExceededError(OpError, RuntimeError):
    """An operation took longer than the program allows.

    `WorkerStalledError` is a subclass of it.

    >>> try:
    ...     raise WorkerStalledError("Worker 1 is behind.", worker=1, step=20)
    ... except DeadlineExceededError as error:
    ...     print(error)
    Worker 1 is behind.
    """

    error_code = DEADLINE_EXCEEDED


class AbortedError(OpError, RuntimeError):
    """An operation was aborted, for example because of a conflict with another one.

    unisono does not raise it; your program can raise and catch it.

    >>> try:
    ...     raise AbortedError("Two steps met.")
    ... except OpError as error:
    ...     print(error)
    Two steps met.
    """

    error_code = ABORTED


class InternalError(OpError, RuntimeError):
    """Something is broken internally; unisono itself never raises it.

    >>> InternalError("No such state.").error_code
    13
    """

    error_code = INTERNAL


class PermissionDeniedError(OpError, PermissionError):
    """The program may not read or write a file.

    >>> try:
    ...     raise PermissionDeniedError("notes; Permission denied")
    ... except PermissionError as error:
    ...     print(error)
    notes; Permission denied
    """

    error_code = PERMISSION_DENIED


class ResourceExhaustedError(OpError, RuntimeError):
    """There is no memory left; unisono itself never raises it.

    If the memory of a device is full, JAX raises `jax.errors.JaxRuntimeError`, with the
    code ``RESOURCE_EXHAUSTED`` in its message.

    >>> ResourceExhaustedError("Out of memory.").error_code
    8
    """

    error_code = RESOURCE_EXHAUSTED


class UnauthenticatedError(OpError, RuntimeError):
    """A request has no valid credentials; unisono itself never raises it.

    >>> UnauthenticatedError("Who is it?").error_code
    16
    """

    error_code = UNAUTHENTICATED


class UnimplementedError(OpError, NotImplementedError):
    """An operation is not implemented; unisono itself never raises it.

    >>> UnimplementedError("Not for strings.").error_code
    12
    """

    error_code = UNIMPLEMENTED


class UnknownError(OpError, RuntimeError):
    """An error of any other kind; unisono itself never raises it.

    >>> UnknownError("Something else.").error_code
    2
    """

    error_code = UNKNOWN


class LaunchError(RuntimeError):
    """A worker that the launcher started has failed.

    Attributes:
        worker: the index of the worker that failed first; None after a timeout.
        exit_code: the exit code of that worker, as a shell reports it.
        worker_traceback: the traceback of that worker, or the empty string.

    >>> try:
    ...     raise LaunchError("Worker 1 failed.", worker=1, exit_code=137)
    ... except LaunchError as error:
    ...     print(error, error.worker, error.exit_code, repr(error.worker_traceback))
    Worker 1 failed. 1 137 ''
    """

    def __init__(
        self,
        message: str,
        worker: int | None = None,
        exit_code: int = 1,
        worker_traceback: str = "",
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.exit_code = exit_code
        self.worker_traceback = worker_traceback


class SaveError(OSError):
    """A checkpoint could not be written; older checkpoints are untouched.

    >>> import os, tempfile, unisono
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     try:
    ...         unisono.train.Checkpoint().save(os.path.join(file.name, "ckpt"))
    ...     except unisono.errors.SaveError as error:
    ...         print(error)
    The checkpoint ...ckpt-1 could not be written: ... is not a directory. ...
    """


class WorkerError(RuntimeError):
    """A worker failed, or the workers disagree; every worker raises it.

    Attributes:
        worker: the index of the worker that failed, or None if it concerns all.
        step: the step at which it happened, or None if that is not known.
        lost: the names of the variables whose values were lost because the step was
            updating them in place. With ``guard="strict"`` it is empty, unless a worker
            is lost during a step.

    >>> error = WorkerError("Worker 1 failed.", worker=1, step=20)
    >>> error.lost = ("dense/kernel",)
    >>> print(error)
    Worker 1 failed.
    The step was updating these variables in place; they have no value any more:
    dense/kernel. Restore them from a checkpoint.
    """

    lost: tuple[str, ...] = ()

    def __init__(
        self, message: str, worker: int | None = None, step: int | None = None
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.step = step

    def __str__(self) -> str:
        said = super().__str__()
        if not self.lost:
            return said
        gone = ", ".join(self.lost)
        return (
            f"{said}\nThe step was updating these variables in place; they have no "
            f"value any more: {gone}. Restore them from a checkpoint."
        )


class WorkerMismatchError(WorkerError):
    """The workers do not run the same program, or run it with different shapes.

    >>> try:
    ...     raise WorkerMismatchError("The workers are at different points.", step=3)
    ... except WorkerError as error:
    ...     print(error, error.worker, error.step)
    The workers are at different points. None 3
    """


class WorkerFailedError(WorkerError):
    """A worker raised an exception; the message has its traceback.

    >>> try:
    ...     raise WorkerFailedError("Worker 1 failed: ValueError", worker=1)
    ... except WorkerError as error:
    ...     print(error, error.worker, error.step)
    Worker 1 failed: ValueError 1 None
    """


class WorkerLostError(WorkerError):
    """A worker was lost: it was killed, stopped or cut off, or it ended too early.

    >>> try:
    ...     raise WorkerLostError("Worker 1 is gone.", worker=1)
    ... except WorkerError as error:
    ...     print(error, error.worker, error.step)
    Worker 1 is gone. 1 None
    """


class WorkerStalledError(WorkerError, DeadlineExceededError):
    """A worker is alive, but has not reached the step of the other workers in time.

    >>> try:
    ...     raise WorkerStalledError("Worker 1 is behind.", worker=1, step=20)
    ... except WorkerError as error:
    ...     print(error, error.worker, error.step)
    Worker 1 is behind. 1 20
    """


class Signal(BaseException):
    """Steers the package from inside; no caller of the package ever sees one.

    It is a `BaseException`, so that a user's `except Exception` does not catch it.
    """


class ReplicaStop(Signal):
    """Ends a waiting replica after another one has failed."""


MERGE_COUNT_MISMATCH = (
    "Some replicas made a different number of replica_context().merge_call() calls. "
    "Every replica must reach each merge_call, all_reduce, all_gather and aggregating "
    "assign; do not guard them with a condition that differs between replicas."
)


def cross_replica_required_error(message: str | None = None) -> RuntimeError:
    """Returns the error for a call in replica context that is not allowed there.

    Args:
        message: what the method says; None for the usual message.
    """
    usual = (
        "Method requires being in cross-replica context, use "
        "get_replica_context().merge_call()"
    )
    return add_section(RuntimeError(message or usual), "Cross-replica context required")


def mixed_strategies_error(current: object, wanted: object) -> RuntimeError:
    """Returns the error for a second strategy where only one is allowed."""
    message = (
        f"Mixing different tf.distribute.Strategy objects: {current!r} is not "
        f"{wanted!r}. Leave the scope of the first strategy before using the second, "
        "or use the same strategy object throughout."
    )
    return add_section(RuntimeError(message), "Mixed strategies")


def not_distributed_error(value: object, op: object) -> ValueError:
    """Returns the error for a plain value where one value per replica is expected."""
    message = (
        f"A non-DistributedValues value {value!r} cannot be reduced with the given "
        f"reduce op {op}. Every replica would contribute the same object; pass the "
        "result of Strategy.run, or multiply by the number of replicas yourself."
    )
    return add_section(ValueError(message), "A plain value cannot be reduced")


def diverging_copies_error(name: str, origin: str) -> ValueError:
    """Returns the error for a write after which the copies of a variable would differ.

    Args:
        name: the name of the mirrored variable.
        origin: the file and line that created it.
    """
    message = (
        f"The copies of the mirrored variable '{name}' (created at {origin}) would get "
        "different values on different replicas. Combine the value first: all_reduce "
        "it, reduce_to the variable, or give the variable an aggregation and assign it "
        "in replica context."
    )
    return add_section(ValueError(message), "Copies would get different values")


def different_points_error(points: Sequence[str]) -> WorkerMismatchError:
    """Returns the error for workers that meet at different points of their programs.

    Args:
        points: a description of the point of each worker, by its index.
    """
    told = "; ".join(f"worker {i}: {p}" for i, p in enumerate(points))
    return WorkerMismatchError(
        f"The workers have come to different points of their programs. {told}. Every "
        "worker must run the same strategy calls in the same order; look for a "
        "condition on the worker's index, or for data that differ in number."
    )


def garbled_message_error(what: str) -> WorkerMismatchError:
    """Returns the error for a message of another worker that cannot be read.

    Args:
        what: a description of what was sent instead.
    """
    return WorkerMismatchError(
        f"A worker sent {what}. Do all workers run the same version of the program "
        "and of its libraries?"
    )


publish_errors(
    *(
        kind
        for kind in globals().values()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    )
)
