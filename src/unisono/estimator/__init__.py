"""`Estimator`, its specs, hooks and exporters, under the names of ``tf.estimator``."""

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
from unisono.estimator import export

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
