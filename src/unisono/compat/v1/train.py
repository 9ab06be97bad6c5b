"""Checkpoints and the global step under the names of ``tf.compat.v1.train``."""

from unisono.train import (
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    ClusterSpec,
    ExponentialMovingAverage,
    get_global_step,
    get_or_create_global_step,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
)
from unisono.train import load_checkpoint as NewCheckpointReader

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointOptions",
    "ClusterSpec",
    "ExponentialMovingAverage",
    "NewCheckpointReader",
    "get_global_step",
    "get_or_create_global_step",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
]
