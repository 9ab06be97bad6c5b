"""The exceptions that this package raises, under ``tf.errors``' names where it can."""

from unisono._src.execution.traced_values import (
    OperatorNotAllowedInGraphError as OperatorNotAllowedInGraphError,
)
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.errors import (
    AlreadyExistsError as AlreadyExistsError,
    CancelledError as CancelledError,
    DataLossError as DataLossError,
    DeadlineExceededError as DeadlineExceededError,
    FailedPreconditionError as FailedPreconditionError,
    InvalidArgumentError as InvalidArgumentError,
    LaunchError as LaunchError,
    NotFoundError as NotFoundError,
    OutOfRangeError as OutOfRangeError,
    SaveError as SaveError,
    UnavailableError as UnavailableError,
    WorkerError as WorkerError,
    WorkerFailedError as WorkerFailedError,
    WorkerLostError as WorkerLostError,
    WorkerMismatchError as WorkerMismatchError,
    WorkerStalledError as WorkerStalledError,
)

_lazy_names.serve(__name__)
