"""Metrics whose state is kept per replica and added up when read."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training import metrics as _metrics
from unisono._src.training.metrics import (
    Mean as Mean,
    MeanMetricWrapper as MeanMetricWrapper,
    Metric as Metric,
    RootMeanSquaredError as RootMeanSquaredError,
    Sum as Sum,
)

# Keras has the other metrics of TensorFlow; it is loaded on first use.
if _typing.TYPE_CHECKING:
    from unisono.keras.metrics import (
        AUC as AUC,
        BinaryCrossentropy as BinaryCrossentropy,
        BinaryIoU as BinaryIoU,
        CategoricalCrossentropy as CategoricalCrossentropy,
        CategoricalHinge as CategoricalHinge,
        CosineSimilarity as CosineSimilarity,
        F1Score as F1Score,
        FalseNegatives as FalseNegatives,
        FalsePositives as FalsePositives,
        FBetaScore as FBetaScore,
        Hinge as Hinge,
        IoU as IoU,
        KLDivergence as KLDivergence,
        LogCoshError as LogCoshError,
        MeanAbsolutePercentageError as MeanAbsolutePercentageError,
        MeanIoU as MeanIoU,
        MeanSquaredLogarithmicError as MeanSquaredLogarithmicError,
        OneHotIoU as OneHotIoU,
        OneHotMeanIoU as OneHotMeanIoU,
        Poisson as Poisson,
        Precision as Precision,
        PrecisionAtRecall as PrecisionAtRecall,
        R2Score as R2Score,
        Recall as Recall,
        RecallAtPrecision as RecallAtPrecision,
        SensitivityAtSpecificity as SensitivityAtSpecificity,
        SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
        SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy,
        SpecificityAtSensitivity as SpecificityAtSensitivity,
        SquaredHinge as SquaredHinge,
        TopKCategoricalAccuracy as TopKCategoricalAccuracy,
        TrueNegatives as TrueNegatives,
        TruePositives as TruePositives,
    )

Accuracy = _metrics.accuracy
BinaryAccuracy = _metrics.binary_accuracy
CategoricalAccuracy = _metrics.categorical_accuracy
MeanAbsoluteError = _metrics.mean_absolute_error
MeanSquaredError = _metrics.mean_squared_error
SparseCategoricalAccuracy = _metrics.sparse_categorical_accuracy

_lazy_names.serve(__name__)
