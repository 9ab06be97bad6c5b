"""Exceptions, at TensorFlow's names."""

from unisono._src.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    LaunchError,
    NotFoundError,
    OutOfRangeError,
    SaveError,
)

__all__ = [
    "DataLossError",
    "FailedPreconditionError",
    "InvalidArgumentError",
    "LaunchError",
    "NotFoundError",
    "OutOfRangeError",
    "SaveError",
]
