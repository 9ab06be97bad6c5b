"""The exceptions that this package raises, under ``tf.errors``' names where it can."""

from unisono._src.execution.traced_values import (
    OperatorNotAllowedInGraphError as OperatorNotAllowedInGraphError,
)
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.error_codes import (
    ABORTED as ABORTED,
    ALREADY_EXISTS as ALREADY_EXISTS,
    CANCELLED as CANCELLED,
    DATA_LOSS as DATA_LOSS,
    DEADLINE_EXCEEDED as DEADLINE_EXCEEDED,
    FAILED_PRECONDITION as FAILED_PRECONDITION,
    INTERNAL as INTERNAL,
    INVALID_ARGUMENT as INVALID_ARGUMENT,
    NOT_FOUND as NOT_FOUND,
    OK as OK,
    OUT_OF_RANGE as OUT_OF_RANGE,
    PERMISSION_DENIED as PERMISSION_DENIED,
    RESOURCE_EXHAUSTED as RESOURCE_EXHAUSTED,
    UNAUTHENTICATED as UNAUTHENTICATED,
    UNAVAILABLE as UNAVAILABLE,
    UNIMPLEMENTED as UNIMPLEMENTED,
    UNKNOWN as UNKNOWN,
)
from unisono._src.foundation.errors import (
    AbortedError as AbortedError,
    AlreadyExistsError as AlreadyExistsError,
    CancelledError as CancelledError,
    DataLossError as DataLossError,
    DeadlineExceededError as DeadlineExceededError,
    FailedPreconditionError as FailedPreconditionError,
    InternalError as InternalError,
    InvalidArgumentError as InvalidArgumentError,
    LaunchError as LaunchError,
    NotFoundError as NotFoundError,
    OpError as OpError,
    OutOfRangeError as OutOfRangeError,
    PermissionDeniedError as PermissionDeniedError,
    ResourceExhaustedError as ResourceExhaustedError,
    SaveError as SaveError,
    UnauthenticatedError as UnauthenticatedError,
    UnavailableError as UnavailableError,
    UnimplementedError as UnimplementedError,
    UnknownError as UnknownError,
    WorkerError as WorkerError,
    WorkerFailedError as WorkerFailedError,
    WorkerLostError as WorkerLostError,
    WorkerMismatchError as WorkerMismatchError,
    WorkerStalledError as WorkerStalledError,
)

_lazy_names.serve(__name__)
