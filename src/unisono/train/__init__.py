"""Checkpoints, the global step, cluster specs and progress: names of ``tf.train``.

`CheckpointReader`, `CheckpointState`, `ClosureProgress`, `LoadedTensors`, `Progress`,
`StepTimes` and `load_safetensors` are not in TensorFlow.
"""

import typing as _typing

from unisono._src.cluster.cluster_tasks import ClusterSpec as ClusterSpec
from unisono._src.estimator.variable_store import get_global_step as get_global_step
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.saving.checkpoint.checkpoint import (
    Checkpoint as Checkpoint,
    CheckpointOptions as CheckpointOptions,
)
from unisono._src.saving.checkpoint.manager import (
    CheckpointManager as CheckpointManager,
)
from unisono._src.saving.checkpoint.reading import (
    CheckpointReader as CheckpointReader,
    CheckpointState as CheckpointState,
    checkpoints_iterator as checkpoints_iterator,
    get_checkpoint_state as get_checkpoint_state,
    latest_checkpoint as latest_checkpoint,
    list_variables as list_variables,
    load_checkpoint as load_checkpoint,
    load_variable as load_variable,
)
from unisono._src.saving.pretrained import (
    LoadedTensors as LoadedTensors,
    load_safetensors as load_safetensors,
)
from unisono._src.servers.closure_progress import ClosureProgress as ClosureProgress
from unisono._src.training.moving_average import (
    ExponentialMovingAverage as ExponentialMovingAverage,
)
from unisono._src.training.progress import Progress as Progress, StepTimes as StepTimes

if _typing.TYPE_CHECKING:
    from unisono._src.ops.records.messages import *  # noqa: F403

get_or_create_global_step = get_global_step

_lazy_names.serve(__name__)
