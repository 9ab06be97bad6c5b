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
    double,
    float16,
    float32,
    float64,
    half,
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
        autograph,
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
    from unisono._src.ops.control_flow import case, cond, switch_case, while_loop
    from unisono._src.ops.device_scope import device
    from unisono._src.ops.element_types import (
        DType,
        Tensor,
        as_dtype,
        is_tensor,
        newaxis,
    )
    from unisono._src.ops.execution_mode import (
        executing_eagerly,
        get_logger,
        get_static_value,
        inside_function,
        is_symbolic_tensor,
    )
    from unisono._src.ops.execution_order import control_dependencies, group, no_op
    from unisono._src.ops.facades.root import *  # noqa: F403
    from unisono._src.ops.host_functions import numpy_function, py_function
    from unisono._src.ops.mapping import foldl, foldr, map_fn, scan, vectorized_map
    from unisono._src.ops.name_scope import get_current_name_scope, name_scope
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
            "DType": "unisono._src.ops.element_types",
            "Module": "unisono._src.saving.checkpoint.module",
            "Tensor": "unisono._src.ops.element_types",
            "TensorShape": "unisono._src.ops.tensor_shape",
            "as_dtype": "unisono._src.ops.element_types",
            "assert_equal": "unisono._src.ops.checks",
            "assert_greater": "unisono._src.ops.checks",
            "assert_less": "unisono._src.ops.checks",
            "assert_rank": "unisono._src.ops.shape_checks",
            "control_dependencies": "unisono._src.ops.execution_order",
            "autograph": "unisono",
            "case": "unisono._src.ops.control_flow",
            "cond": "unisono._src.ops.control_flow",
            "data": "unisono",
            "debugging": "unisono",
            "device": "unisono._src.ops.device_scope",
            "dtypes": "unisono",
            "estimator": "unisono",
            "executing_eagerly": "unisono._src.ops.execution_mode",
            "experimental": "unisono",
            "group": "unisono._src.ops.execution_order",
            "foldl": "unisono._src.ops.mapping",
            "foldr": "unisono._src.ops.mapping",
            "get_current_name_scope": "unisono._src.ops.name_scope",
            "get_logger": "unisono._src.ops.execution_mode",
            "get_static_value": "unisono._src.ops.execution_mode",
            "initializers": "unisono.keras",
            "inside_function": "unisono._src.ops.execution_mode",
            "io": "unisono",
            "is_symbolic_tensor": "unisono._src.ops.execution_mode",
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
            "map_fn": "unisono._src.ops.mapping",
            "numpy_function": "unisono._src.ops.host_functions",
            "print": "unisono._src.ops.printing:print_values",
            "profiler": "unisono",
            "py_function": "unisono._src.ops.host_functions",
            "random": "unisono",
            "saved_model": "unisono",
            "scan": "unisono._src.ops.mapping",
            "summary": "unisono",
            "switch_case": "unisono._src.ops.control_flow",
            "tpu": "unisono",
            "train": "unisono",
            "vectorized_map": "unisono._src.ops.mapping",
            "while_loop": "unisono._src.ops.control_flow",
        },
    )

# Its only place: pyproject.toml has it read from this line, so it must be a literal.
__version__ = "0.1.0"

__all__ = [
    "Assert",
    "ConcreteFunction",
    "DType",
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
    "autograph",
    "bfloat16",
    "bool",
    "case",
    "compat",
    "complex64",
    "complex128",
    "cond",
    "config",
    "control_dependencies",
    "data",
    "debugging",
    "device",
    "distribute",
    "double",
    "dtypes",
    "errors",
    "estimator",
    "executing_eagerly",
    "experimental",
    "float16",
    "float32",
    "float64",
    "foldl",
    "foldr",
    "function",
    "get_current_name_scope",
    "get_logger",
    "get_static_value",
    "grad",
    "group",
    "half",
    "inside_function",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "is_symbolic_tensor",
    "is_tensor",
    "keras",
    "launch",
    "linalg",
    "math",
    "map_fn",
    "metrics",
    "name_scope",
    "nest",
    "newaxis",
    "nn",
    "no_op",
    "numpy_function",
    "optimizers",
    "print",
    "profiler",
    "py_function",
    "random",
    "saved_model",
    "scan",
    "string",
    "summary",
    "switch_case",
    "tpu",
    "train",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "value_and_grad",
    "variable_creator_scope",
    *_everyday.__all__,
    "vectorized_map",
    "while_loop",
]
