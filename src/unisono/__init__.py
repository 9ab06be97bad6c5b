"""TensorFlow's tf.distribute programming model on JAX.

Write a training program once and run it on one device, eight, or a cluster. Public
names live at TensorFlow's dotted paths, so ``import unisono as tf`` runs the
distribution part of a TensorFlow program, and its everyday names for arrays,
mathematics and neural networks; arrays are JAX's, so `jax.numpy` takes them too.
"""

import typing as _typing

from unisono import compat, config, distribute, errors, metrics, nn, optimizers
from unisono._src.execution.concrete_function import ConcreteFunction
from unisono._src.execution.function import Function, function
from unisono._src.execution.gradient_tape import GradientTape, UnconnectedGradients
from unisono._src.execution.gradients import grad, value_and_grad
from unisono._src.execution.specs import TensorSpec, TypeSpec
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.dtypes import (
    bfloat16,
    bool,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from unisono._src.foundation.errors import FailedPreconditionError, InvalidArgumentError
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.integrations import jax_arrays as _jax_arrays
from unisono._src.integrations import libraries as _libraries
from unisono._src.ops.facades import root as _everyday
from unisono._src.state.creation import variable_creator_scope
from unisono._src.state.variables import Variable
from unisono._src.values.indexed_slices import IndexedSlices

if _typing.TYPE_CHECKING:
    from unisono import (
        data,
        debugging,
        dtypes,
        estimator,
        experimental,
        io,
        keras,
        linalg,
        math,
        nest,
        profiler,
        random,
        saved_model,
        summary,
        tpu,
        train,
    )
    from unisono._src.cli.launch.calls import launch
    from unisono._src.ops.checks import (
        Assert,
        assert_equal,
        assert_greater,
        assert_less,
    )
    from unisono._src.ops.device_scope import device
    from unisono._src.ops.element_types import Tensor, as_dtype, is_tensor, newaxis
    from unisono._src.ops.execution_order import control_dependencies, group, no_op
    from unisono._src.ops.facades.root import *  # noqa: F403
    from unisono._src.ops.name_scope import name_scope
    from unisono._src.ops.printing import print_values as print
    from unisono._src.ops.shape_checks import assert_rank
    from unisono._src.ops.tensor_shape import TensorShape
    from unisono._src.saving.checkpoint.module import Module
    from unisono.keras import initializers as initializers
    from unisono.keras import losses as losses

_libraries.install()
_jax_arrays.install()
_lazy_names.install()

# Loaded on first use: not every program reads, saves, launches or computes with these.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.names(
        "unisono",
        {
            **_everyday.PLACES,
            "Assert": "unisono._src.ops.checks",
            "Module": "unisono._src.saving.checkpoint.module",
            "Tensor": "unisono._src.ops.element_types",
            "TensorShape": "unisono._src.ops.tensor_shape",
            "as_dtype": "unisono._src.ops.element_types",
            "assert_equal": "unisono._src.ops.checks",
            "assert_greater": "unisono._src.ops.checks",
            "assert_less": "unisono._src.ops.checks",
            "assert_rank": "unisono._src.ops.shape_checks",
            "control_dependencies": "unisono._src.ops.execution_order",
            "data": "unisono",
            "debugging": "unisono",
            "device": "unisono._src.ops.device_scope",
            "dtypes": "unisono",
            "estimator": "unisono",
            "experimental": "unisono",
            "group": "unisono._src.ops.execution_order",
            "initializers": "unisono.keras",
            "io": "unisono",
            "is_tensor": "unisono._src.ops.element_types",
            "keras": "unisono",
            "launch": "unisono._src.cli.launch.calls",
            "linalg": "unisono",
            "losses": "unisono.keras",
            "math": "unisono",
            "name_scope": "unisono._src.ops.name_scope",
            "nest": "unisono",
            "newaxis": "unisono._src.ops.element_types",
            "no_op": "unisono._src.ops.execution_order",
            "print": "unisono._src.ops.printing:print_values",
            "profiler": "unisono",
            "random": "unisono",
            "saved_model": "unisono",
            "summary": "unisono",
            "tpu": "unisono",
            "train": "unisono",
        },
    )

# Its only place: pyproject.toml has it read from this line, so it must be a literal.
__version__ = "0.1.0"

__all__ = [
    "Assert",
    "ConcreteFunction",
    "FailedPreconditionError",
    "Function",
    "GradientTape",
    "IndexedSlices",
    "InvalidArgumentError",
    "Module",
    "Tensor",
    "TensorShape",
    "TensorSpec",
    "TypeSpec",
    "UnconnectedGradients",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "as_dtype",
    "assert_equal",
    "assert_greater",
    "assert_less",
    "assert_rank",
    "bfloat16",
    "bool",
    "compat",
    "complex64",
    "complex128",
    "config",
    "control_dependencies",
    "data",
    "debugging",
    "device",
    "distribute",
    "dtypes",
    "errors",
    "estimator",
    "experimental",
    "float16",
    "float32",
    "float64",
    "function",
    "grad",
    "group",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "is_tensor",
    "keras",
    "launch",
    "linalg",
    "math",
    "metrics",
    "name_scope",
    "nest",
    "newaxis",
    "nn",
    "no_op",
    "optimizers",
    "print",
    "profiler",
    "random",
    "saved_model",
    "string",
    "summary",
    "tpu",
    "train",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "value_and_grad",
    "variable_creator_scope",
    *_everyday.__all__,
]
