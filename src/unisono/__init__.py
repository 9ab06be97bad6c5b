"""TensorFlow's tf.distribute programming model on JAX.

Write a training program once and run it on one device, eight, or a cluster. Public
names live at TensorFlow's dotted paths, so ``import unisono as tf`` runs the
distribution part of a TensorFlow program; mathematics is `jax.numpy`.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

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
    train,
)
from unisono._src.creation import variable_creator_scope
from unisono._src.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    LaunchError,
)
from unisono._src.function import Function, function
from unisono._src.gradients import grad, value_and_grad
from unisono._src.integrations import jax_arrays as _jax_arrays
from unisono._src.options import VariableAggregation, VariableSynchronization
from unisono._src.slices import IndexedSlices
from unisono._src.specs import TensorSpec, TypeSpec
from unisono._src.variables import Variable

if _TYPE_CHECKING:
    from unisono._src.cli.calls import launch

_jax_arrays.install()

__version__ = "0.1.0"

__all__ = [
    "FailedPreconditionError",
    "Function",
    "IndexedSlices",
    "InvalidArgumentError",
    "LaunchError",
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
    "launch",
    "metrics",
    "nn",
    "optimizers",
    "train",
    "value_and_grad",
    "variable_creator_scope",
]


def __getattr__(name: str) -> _Any:
    # Loaded on first use: a worker has no use for it.
    if name == "launch":
        return _importlib.import_module("unisono._src.cli.calls").launch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
