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

if _typing.TYPE_CHECKING:
    from unisono.keras.metrics import AUC as AUC
    from unisono.keras.metrics import BinaryCrossentropy as BinaryCrossentropy
    from unisono.keras.metrics import BinaryIoU as BinaryIoU
    from unisono.keras.metrics import CategoricalCrossentropy as CategoricalCrossentropy
    from unisono.keras.metrics import CategoricalHinge as CategoricalHinge
    from unisono.keras.metrics import CosineSimilarity as CosineSimilarity
    from unisono.keras.metrics import F1Score as F1Score
    from unisono.keras.metrics import FalseNegatives as FalseNegatives
    from unisono.keras.metrics import FalsePositives as FalsePositives
    from unisono.keras.metrics import FBetaScore as FBetaScore
    from unisono.keras.metrics import Hinge as Hinge
    from unisono.keras.metrics import IoU as IoU
    from unisono.keras.metrics import KLDivergence as KLDivergence
    from unisono.keras.metrics import LogCoshError as LogCoshError
    from unisono.keras.metrics import (
        MeanAbsolutePercentageError as MeanAbsolutePercentageError,
    )
    from unisono.keras.metrics import MeanIoU as MeanIoU
    from unisono.keras.metrics import (
        MeanSquaredLogarithmicError as MeanSquaredLogarithmicError,
    )
    from unisono.keras.metrics import OneHotIoU as OneHotIoU
    from unisono.keras.metrics import OneHotMeanIoU as OneHotMeanIoU
    from unisono.keras.metrics import Poisson as Poisson
    from unisono.keras.metrics import Precision as Precision
    from unisono.keras.metrics import PrecisionAtRecall as PrecisionAtRecall
    from unisono.keras.metrics import R2Score as R2Score
    from unisono.keras.metrics import Recall as Recall
    from unisono.keras.metrics import RecallAtPrecision as RecallAtPrecision
    from unisono.keras.metrics import (
        SensitivityAtSpecificity as SensitivityAtSpecificity,
    )
    from unisono.keras.metrics import (
        SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
    )
    from unisono.keras.metrics import (
        SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy,
    )
    from unisono.keras.metrics import (
        SpecificityAtSensitivity as SpecificityAtSensitivity,
    )
    from unisono.keras.metrics import SquaredHinge as SquaredHinge
    from unisono.keras.metrics import TopKCategoricalAccuracy as TopKCategoricalAccuracy
    from unisono.keras.metrics import TrueNegatives as TrueNegatives
    from unisono.keras.metrics import TruePositives as TruePositives

# Keras has the other metrics of TensorFlow; it is loaded on first use.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.metrics",
        dict.fromkeys(
            (
                "AUC", "BinaryCrossentropy", "BinaryIoU", "CategoricalCrossentropy",
                "CategoricalHinge", "CosineSimilarity", "F1Score", "FBetaScore",
                "FalseNegatives", "FalsePositives", "Hinge", "IoU", "KLDivergence",
                "LogCoshError", "MeanAbsolutePercentageError", "MeanIoU",
                "MeanSquaredLogarithmicError", "OneHotIoU", "OneHotMeanIoU", "Poisson",
                "Precision", "PrecisionAtRecall", "R2Score", "Recall",
                "RecallAtPrecision", "SensitivityAtSpecificity",
                "SparseCategoricalCrossentropy", "SparseTopKCategoricalAccuracy",
                "SpecificityAtSensitivity", "SquaredHinge", "TopKCategoricalAccuracy",
                "TrueNegatives", "TruePositives",
            ),
            "unisono.keras.metrics",
        ),
    )  # fmt: skip

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
