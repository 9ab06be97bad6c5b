"""Checkpoints, the global step, cluster specs and progress: names of ``tf.train``.

`CheckpointReader`, `ClosureProgress`, `Progress` and `StepTimes` are not in TensorFlow.
"""

import typing as _typing

from unisono._src.cluster.cluster_tasks import ClusterSpec
from unisono._src.estimator.variable_store import get_global_step
from unisono._src.estimator.variable_store import (
    get_global_step as get_or_create_global_step,
)
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.saving.checkpoint.checkpoint import Checkpoint, CheckpointOptions
from unisono._src.saving.checkpoint.manager import CheckpointManager
from unisono._src.saving.checkpoint.reading import (
    CheckpointReader,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
)
from unisono._src.servers.closure_progress import ClosureProgress
from unisono._src.training.moving_average import ExponentialMovingAverage
from unisono._src.training.progress import Progress, StepTimes

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.train", {})

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointOptions",
    "CheckpointReader",
    "ClosureProgress",
    "ClusterSpec",
    "ExponentialMovingAverage",
    "Progress",
    "StepTimes",
    "get_global_step",
    "get_or_create_global_step",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
]
