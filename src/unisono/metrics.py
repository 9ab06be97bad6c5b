"""Metrics whose state is kept per replica and added up when read."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.metrics import (
    Mean,
    MeanMetricWrapper,
    Metric,
    RootMeanSquaredError,
    Sum,
)
from unisono._src.training.metrics import accuracy as Accuracy
from unisono._src.training.metrics import binary_accuracy as BinaryAccuracy
from unisono._src.training.metrics import categorical_accuracy as CategoricalAccuracy
from unisono._src.training.metrics import mean_absolute_error as MeanAbsoluteError
from unisono._src.training.metrics import mean_squared_error as MeanSquaredError
from unisono._src.training.metrics import (
    sparse_categorical_accuracy as SparseCategoricalAccuracy,
)

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.names("unisono.metrics", {})

__all__ = [
    "Accuracy",
    "BinaryAccuracy",
    "CategoricalAccuracy",
    "Mean",
    "MeanAbsoluteError",
    "MeanMetricWrapper",
    "MeanSquaredError",
    "Metric",
    "RootMeanSquaredError",
    "SparseCategoricalAccuracy",
    "Sum",
]
