"""`Estimator`, its specs, hooks and exporters, under the names of ``tf.estimator``."""

import typing as _typing

from unisono._src.estimator.config import RunConfig
from unisono._src.estimator.estimator import Estimator
from unisono._src.estimator.estimator_spec import EstimatorSpec, ModeKeys, minimize
from unisono._src.estimator.hooks import (
    CheckpointSaverListener,
    NanLossDuringTrainingError,
    NanTensorHook,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopAtStepHook,
)
from unisono._src.estimator.training import (
    EvalSpec,
    Exporter,
    FinalExporter,
    LatestExporter,
    TrainSpec,
    train_and_evaluate,
)
from unisono._src.foundation import lazy_names as _lazy_names
from unisono.estimator import export

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.estimator", {})

__all__ = [
    "CheckpointSaverListener",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FinalExporter",
    "LatestExporter",
    "ModeKeys",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "RunConfig",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StopAtStepHook",
    "TrainSpec",
    "export",
    "minimize",
    "train_and_evaluate",
]
