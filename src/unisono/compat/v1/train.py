"""Checkpoints, records and the global step: names of ``tf.compat.v1.train``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono.train import (
    Checkpoint as Checkpoint,
    CheckpointManager as CheckpointManager,
    CheckpointOptions as CheckpointOptions,
    ClusterSpec as ClusterSpec,
    ExponentialMovingAverage as ExponentialMovingAverage,
    checkpoints_iterator as checkpoints_iterator,
    get_checkpoint_state as get_checkpoint_state,
    get_global_step as get_global_step,
    get_or_create_global_step as get_or_create_global_step,
    latest_checkpoint as latest_checkpoint,
    list_variables as list_variables,
    load_checkpoint as load_checkpoint,
    load_variable as load_variable,
)

# Loaded on first use, as Protocol Buffers are.
if _typing.TYPE_CHECKING:
    from unisono.train import (
        BytesList as BytesList,
        Example as Example,
        Feature as Feature,
        FeatureList as FeatureList,
        FeatureLists as FeatureLists,
        Features as Features,
        FloatList as FloatList,
        Int64List as Int64List,
        SequenceExample as SequenceExample,
    )

NewCheckpointReader = load_checkpoint

_lazy_names.serve(__name__)
