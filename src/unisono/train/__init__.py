"""Saving and restoring: TensorFlow's ``tf.train``."""

from unisono._src.checkpoint.checkpoint import Checkpoint, CheckpointOptions
from unisono._src.checkpoint.manager import CheckpointManager
from unisono._src.checkpoint.reading import (
    latest_checkpoint,
    list_variables,
    load_variable,
)

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointOptions",
    "latest_checkpoint",
    "list_variables",
    "load_variable",
]
