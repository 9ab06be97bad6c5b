"""`Estimator`, its specs, hooks and exporters, under the names of ``tf.estimator``."""

from unisono._src.estimator.config import RunConfig as RunConfig
from unisono._src.estimator.estimator import Estimator as Estimator
from unisono._src.estimator.estimator_spec import (
    EstimatorSpec as EstimatorSpec,
    ModeKeys as ModeKeys,
    minimize as minimize,
)
from unisono._src.estimator.hooks import (
    CheckpointSaverListener as CheckpointSaverListener,
    NanLossDuringTrainingError as NanLossDuringTrainingError,
    NanTensorHook as NanTensorHook,
    SessionRunContext as SessionRunContext,
    SessionRunHook as SessionRunHook,
    SessionRunValues as SessionRunValues,
    StopAtStepHook as StopAtStepHook,
)
from unisono._src.estimator.training import (
    EvalSpec as EvalSpec,
    Exporter as Exporter,
    FinalExporter as FinalExporter,
    LatestExporter as LatestExporter,
    TrainSpec as TrainSpec,
    train_and_evaluate as train_and_evaluate,
)
from unisono._src.foundation import lazy_names as _lazy_names
from unisono.estimator import export as export

_lazy_names.serve(__name__)
