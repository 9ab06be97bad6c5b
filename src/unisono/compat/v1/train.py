"""Checkpoints and the global step under the names of ``tf.compat.v1.train``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
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

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.compat.v1.train", {})

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
