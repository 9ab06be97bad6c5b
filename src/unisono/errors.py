"""The exceptions that this package raises, under ``tf.errors``' names where it can."""

from unisono._src.foundation.errors import (
    CancelledError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    LaunchError,
    NotFoundError,
    OutOfRangeError,
    SaveError,
    UnavailableError,
    WorkerError,
    WorkerFailedError,
    WorkerLostError,
    WorkerMismatchError,
    WorkerStalledError,
)

__all__ = [
    "CancelledError",
    "DataLossError",
    "FailedPreconditionError",
    "InvalidArgumentError",
    "LaunchError",
    "NotFoundError",
    "OutOfRangeError",
    "SaveError",
    "UnavailableError",
    "WorkerError",
    "WorkerFailedError",
    "WorkerLostError",
    "WorkerMismatchError",
    "WorkerStalledError",
]
