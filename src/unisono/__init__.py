"""TensorFlow's tf.distribute programming model on JAX.

Write a training program once and run it on one device, eight, or a cluster. Public
names live at TensorFlow's dotted paths, so ``import unisono as tf`` runs the
distribution part of a TensorFlow program; mathematics is `jax.numpy`.
"""

from unisono import (
    compat,
    config,
    data,
    distribute,
    errors,
    experimental,
    io,
    metrics,
    nn,
    optimizers,
)
from unisono._src.creation import variable_creator_scope
from unisono._src.errors import FailedPreconditionError, InvalidArgumentError
from unisono._src.function import Function, function
from unisono._src.gradients import grad, value_and_grad
from unisono._src.integrations import companions as _companions
from unisono._src.integrations import jax_arrays as _jax_arrays
from unisono._src.options import VariableAggregation, VariableSynchronization
from unisono._src.slices import IndexedSlices
from unisono._src.specs import TensorSpec, TypeSpec
from unisono._src.variables import Variable

_companions.install()
_jax_arrays.install()

__version__ = "0.1.0"

__all__ = [
    "FailedPreconditionError",
    "Function",
    "IndexedSlices",
    "InvalidArgumentError",
    "TensorSpec",
    "TypeSpec",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "compat",
    "config",
    "data",
    "distribute",
    "errors",
    "experimental",
    "function",
    "grad",
    "io",
    "metrics",
    "nn",
    "optimizers",
    "value_and_grad",
    "variable_creator_scope",
]
