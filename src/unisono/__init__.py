"""TensorFlow's tf.distribute programming model on JAX.

Write a training program once and run it on one device, eight, or a cluster. Public
names live at TensorFlow's dotted paths, so ``import unisono as tf`` runs the
distribution part of a TensorFlow program; mathematics is `jax.numpy`.
"""

from unisono import (
    compat,
    config,
    distribute,
    metrics,
    nn,
    optimizers,
    saved_model,
    train,
)
from unisono._src.checkpoint.module import Module
from unisono._src.creation import variable_creator_scope
from unisono._src.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    SaveError,
)
from unisono._src.function import Function, function
from unisono._src.gradients import grad, value_and_grad
from unisono._src.integrations import jax_arrays as _jax_arrays
from unisono._src.options import VariableAggregation, VariableSynchronization
from unisono._src.slices import IndexedSlices
from unisono._src.specs import TensorSpec, TypeSpec
from unisono._src.variables import Variable

_jax_arrays.install()

__version__ = "0.1.0"

__all__ = [
    "DataLossError",
    "FailedPreconditionError",
    "Function",
    "IndexedSlices",
    "InvalidArgumentError",
    "Module",
    "NotFoundError",
    "SaveError",
    "TensorSpec",
    "TypeSpec",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "compat",
    "config",
    "distribute",
    "function",
    "grad",
    "metrics",
    "nn",
    "optimizers",
    "saved_model",
    "train",
    "value_and_grad",
    "variable_creator_scope",
]
