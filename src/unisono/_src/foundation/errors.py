"""Exception types and the messages that several modules share."""

from __future__ import annotations

from collections.abc import Sequence

from unisono._src.foundation.public_names import publish


class InvalidArgumentError(ValueError):
    """Values that cannot be combined, such as shapes that differ between replicas."""


class FailedPreconditionError(RuntimeError):
    """State that is not there any more, such as a variable lost in a failed step."""


class OutOfRangeError(IndexError):
    """A read past the end, such as `get_next` of an iterator that is exhausted."""


class NotFoundError(FileNotFoundError):
    """A file, a checkpoint, or an entry of one, that is not there."""


class DataLossError(ValueError):
    """A file or checkpoint that is damaged, or is not what it says it is."""


class LaunchError(RuntimeError):
    """A worker that the launcher started failed.

    Attributes:
        worker: the index of the worker that failed first; None if time ran out.
        exit_code: its exit status, as a shell shows it.
        worker_traceback: its traceback, or the empty string.
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
    """A checkpoint that could not be written; those already there are untouched."""


class WorkerError(RuntimeError):
    """Something went wrong on a worker, or between workers; raised on all of them.

    Attributes:
        worker: the worker that it is about, or None if it is about all.
        step: the step at which it happened, or None if that is not known.
        lost: names of variables that the step was updating in place and that have no
            value any more; always empty with ``guard="strict"`` unless a worker is
            lost in the middle of a step.
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
    """The workers do not run the same program, or not with the same shapes."""


class WorkerFailedError(WorkerError):
    """A worker raised an exception; its traceback is in the message."""


class WorkerLostError(WorkerError):
    """A worker is gone: killed, stopped, out of reach, or at its end too early."""


class WorkerStalledError(WorkerError):
    """A worker lives but does not come along."""


class Signal(BaseException):
    """Changes what the package does next; never seen by a caller.

    A `BaseException`, so that a user's `except Exception` does not swallow it.
    """


class ReplicaStop(Signal):
    """Unwinds a waiting replica after another one failed."""


CROSS_REPLICA_REQUIRED = (
    "Method requires being in cross-replica context, use "
    "get_replica_context().merge_call()"
)

MERGE_COUNT_MISMATCH = (
    "Some replicas made a different number of replica_context().merge_call() calls. "
    "Every replica must reach each merge_call, all_reduce, all_gather and aggregating "
    "assign; do not guard them with a condition that differs between replicas."
)


def mixing(current: object, wanted: object) -> RuntimeError:
    """Two strategies meet where one is allowed."""
    return RuntimeError(
        f"Mixing different tf.distribute.Strategy objects: {current!r} is not "
        f"{wanted!r}. Leave the scope of the first strategy before using the second, "
        "or use the same strategy object throughout."
    )


def not_distributed(value: object, op: object) -> ValueError:
    """A plain value was given where one value per replica is expected."""
    return ValueError(
        f"A non-DistributedValues value {value!r} cannot be reduced with the given "
        f"reduce op {op}. Every replica would contribute the same object; pass the "
        "result of Strategy.run, or multiply by the number of replicas yourself."
    )


def diverging(name: str, origin: str) -> ValueError:
    """The copies of a mirrored variable would become different."""
    return ValueError(
        f"The copies of the mirrored variable '{name}' (created at {origin}) would get "
        "different values on different replicas. Combine the value first: all_reduce "
        "it, reduce_to the variable, or give the variable an aggregation and assign it "
        "in replica context."
    )


def replica_count(kind: str, given: int, wanted: int) -> ValueError:
    """A distributed value has the wrong number of components."""
    return ValueError(
        f"{kind} has {given} values but the strategy has {wanted} replicas; pass one "
        "value per replica, made by this strategy, or pass a plain value to share it."
    )


def at_different_points(points: Sequence[str]) -> WorkerMismatchError:
    """Workers meet although they have come to different points of their programs."""
    told = "; ".join(f"worker {i}: {p}" for i, p in enumerate(points))
    return WorkerMismatchError(
        f"The workers have come to different points of their programs. {told}. Every "
        "worker must run the same strategy calls in the same order; look for a "
        "condition on the worker's index, or for data that differ in number."
    )


def garbled(what: str) -> WorkerMismatchError:
    """Another worker sent something that cannot be read."""
    return WorkerMismatchError(
        f"A worker sent {what}. Do all workers run the same version of the program "
        "and of its libraries?"
    )


publish(
    "unisono.errors",
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    LaunchError,
    NotFoundError,
    OutOfRangeError,
    SaveError,
    WorkerError,
    WorkerFailedError,
    WorkerLostError,
    WorkerMismatchError,
    WorkerStalledError,
)
