"""The exceptions that this package raises, under ``tf.errors``' names where it can."""

from unisono._src.execution.traced_values import OperatorNotAllowedInGraphError
from unisono._src.foundation.errors import (
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

__all__ = [
    "DataLossError",
    "FailedPreconditionError",
    "InvalidArgumentError",
    "LaunchError",
    "NotFoundError",
    "OperatorNotAllowedInGraphError",
    "OutOfRangeError",
    "SaveError",
    "WorkerError",
    "WorkerFailedError",
    "WorkerLostError",
    "WorkerMismatchError",
    "WorkerStalledError",
]
