"""The exceptions that this package raises, under ``tf.errors``' names where it can."""

import typing as _typing

from unisono._src.execution.traced_values import OperatorNotAllowedInGraphError
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.errors import (
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
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

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.errors", {})

__all__ = [
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InvalidArgumentError",
    "LaunchError",
    "NotFoundError",
    "OperatorNotAllowedInGraphError",
    "OutOfRangeError",
    "SaveError",
    "UnavailableError",
    "WorkerError",
    "WorkerFailedError",
    "WorkerLostError",
    "WorkerMismatchError",
    "WorkerStalledError",
]
