"""TensorFlow's tf.distribute programming model on JAX.

Write a training program once and run it on one device, eight, or a cluster. Public
names live at TensorFlow's dotted paths, so ``import unisono as tf`` runs the
distribution part of a TensorFlow program, and its everyday names for arrays,
mathematics and neural networks; arrays are JAX's, so `jax.numpy` takes them too.
"""

import typing as _typing

from unisono import config, distribute, errors
from unisono._src.execution.concrete_function import ConcreteFunction
from unisono._src.execution.function import Function, function
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
from unisono._src.ops import MODULES as _MODULES
from unisono._src.state.creation import variable_creator_scope
from unisono._src.state.variables import Variable
from unisono._src.values.indexed_slices import IndexedSlices

if _typing.TYPE_CHECKING:
    from unisono import (
        autograph,
        compat,
        data,
        debugging,
        dtypes,
        estimator,
        experimental,
        io,
        keras,
        linalg,
        math,
        metrics,
        nest,
        nn,
        optimizers,
        profiler,
        random,
        saved_model,
        summary,
        tpu,
        train,
    )
    from unisono._src.cli.launch.calls import launch
    from unisono._src.execution.gradient_tape import GradientTape, UnconnectedGradients
    from unisono._src.execution.gradients import grad, value_and_grad
    from unisono._src.foundation.tensor_shape import TensorShape as TensorShape
    from unisono._src.ops.arithmetic import *  # noqa: F403
    from unisono._src.ops.checks import Assert as Assert
    from unisono._src.ops.checks import assert_equal as assert_equal
    from unisono._src.ops.checks import assert_greater as assert_greater
    from unisono._src.ops.checks import assert_less as assert_less
    from unisono._src.ops.clipping import *  # noqa: F403
    from unisono._src.ops.control_flow import *  # noqa: F403
    from unisono._src.ops.custom_gradients import *  # noqa: F403
    from unisono._src.ops.device_scope import device as device
    from unisono._src.ops.element_types import *  # noqa: F403
    from unisono._src.ops.execution_mode import *  # noqa: F403
    from unisono._src.ops.host_functions import *  # noqa: F403
    from unisono._src.ops.indexing import *  # noqa: F403
    from unisono._src.ops.init_scope import *  # noqa: F403
    from unisono._src.ops.making import *  # noqa: F403
    from unisono._src.ops.mapping import *  # noqa: F403
    from unisono._src.ops.matrices import einsum as einsum
    from unisono._src.ops.matrices import matmul as matmul
    from unisono._src.ops.matrices import norm as norm
    from unisono._src.ops.matrices import tensordot as tensordot
    from unisono._src.ops.name_scope import *  # noqa: F403
    from unisono._src.ops.printing import *  # noqa: F403
    from unisono._src.ops.reductions import *  # noqa: F403
    from unisono._src.ops.shape_checks import assert_rank as assert_rank
    from unisono._src.ops.shaping import *  # noqa: F403
    from unisono._src.ops.sorting import *  # noqa: F403
    from unisono._src.ops.tensor_array import *  # noqa: F403
    from unisono._src.saving.checkpoint.module import Module
    from unisono.keras import initializers as initializers
    from unisono.keras import losses as losses

_libraries.install()
_jax_arrays.install()
_lazy_names.install()

# Its only place: pyproject.toml has it read from this line, so it must be a literal.
__version__ = "0.1.0"

__all__ = [
    "ConcreteFunction",
    "FailedPreconditionError",
    "Function",
    "GradientTape",
    "IndexedSlices",
    "InvalidArgumentError",
    "Module",
    "TensorSpec",
    "TypeSpec",
    "UnconnectedGradients",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "autograph",
    "bfloat16",
    "bool",
    "compat",
    "complex64",
    "complex128",
    "config",
    "data",
    "debugging",
    "distribute",
    "double",
    "dtypes",
    "errors",
    "estimator",
    "experimental",
    "float16",
    "float32",
    "float64",
    "function",
    "grad",
    "half",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "keras",
    "launch",
    "linalg",
    "math",
    "metrics",
    "nest",
    "nn",
    "optimizers",
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
]

# Loaded on first use: not every program reads, saves, launches or computes with these.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono",
        {
            "GradientTape": "unisono._src.execution.gradient_tape",
            "Module": "unisono._src.saving.checkpoint.module",
            "UnconnectedGradients": "unisono._src.execution.gradient_tape",
            "autograph": "unisono",
            "compat": "unisono",
            "data": "unisono",
            "debugging": "unisono",
            "dtypes": "unisono",
            "estimator": "unisono",
            "experimental": "unisono",
            "grad": "unisono._src.execution.gradients",
            "initializers": "unisono.keras",
            "io": "unisono",
            "keras": "unisono",
            "launch": "unisono._src.cli.launch.calls",
            "linalg": "unisono",
            "losses": "unisono.keras",
            "math": "unisono",
            "metrics": "unisono",
            "nest": "unisono",
            "nn": "unisono",
            "optimizers": "unisono",
            "profiler": "unisono",
            "random": "unisono",
            "saved_model": "unisono",
            "summary": "unisono",
            "tpu": "unisono",
            "train": "unisono",
            "value_and_grad": "unisono._src.execution.gradients",
        },
        _MODULES["unisono"],
    )
