"""What a training program needs around its steps, at TensorFlow's names."""

from unisono._src.checkpoint.checkpoint import Checkpoint, CheckpointOptions
from unisono._src.checkpoint.manager import CheckpointManager
from unisono._src.checkpoint.reading import (
    latest_checkpoint,
    list_variables,
    load_variable,
)
from unisono._src.cluster.spec import ClusterSpec

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointOptions",
    "ClusterSpec",
    "latest_checkpoint",
    "list_variables",
    "load_variable",
]
