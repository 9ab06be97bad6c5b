"""TensorFlow's tf.distribute programming model on JAX.

Write a training program once, and run it on one device, on eight, or on a cluster.
Public names have TensorFlow's dotted paths: with ``import unisono as tf`` you can run
the distribution part of a TensorFlow program, and its common functions for arrays,
mathematics and neural networks. Arrays are JAX arrays, so `jax.numpy` accepts them.
"""

import typing as _typing

from unisono import config as config, distribute as distribute, errors as errors
from unisono._src.execution.concrete_function import (
    ConcreteFunction as ConcreteFunction,
)
from unisono._src.execution.function import Function as Function
from unisono._src.execution.function_decorator import function as function
from unisono._src.execution.specs import TensorSpec as TensorSpec, TypeSpec as TypeSpec
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.dtypes import *  # noqa: F403
from unisono._src.foundation.errors import (
    FailedPreconditionError as FailedPreconditionError,
    InvalidArgumentError as InvalidArgumentError,
)
from unisono._src.foundation.options import (
    VariableAggregation as VariableAggregation,
    VariableSynchronization as VariableSynchronization,
)
from unisono._src.integrations import jax_arrays as _jax_arrays, libraries as _libraries
from unisono._src.state.creation import variable_creator_scope as variable_creator_scope
from unisono._src.state.variables import Variable as Variable
from unisono._src.strategies.current import describe as describe
from unisono._src.values.indexed_slices import IndexedSlices as IndexedSlices
from unisono.distribute import get_replica_context as get_replica_context

# Loaded on first use: not every program reads, saves, launches or computes with these.
if _typing.TYPE_CHECKING:
    from unisono import (
        autograph as autograph,
        compat as compat,
        data as data,
        debugging as debugging,
        dtypes as dtypes,
        estimator as estimator,
        experimental as experimental,
        image as image,
        io as io,
        keras as keras,
        linalg as linalg,
        lookup as lookup,
        math as math,
        metrics as metrics,
        nest as nest,
        nn as nn,
        optimizers as optimizers,
        profiler as profiler,
        random as random,
        saved_model as saved_model,
        sparse as sparse,
        strings as strings,
        summary as summary,
        testing as testing,
        tpu as tpu,
        train as train,
    )
    from unisono._src.cli.launch.calls import launch as launch
    from unisono._src.execution.gradient_tape import (
        GradientTape as GradientTape,
        UnconnectedGradients as UnconnectedGradients,
    )
    from unisono._src.execution.gradients import (
        grad as grad,
        value_and_grad as value_and_grad,
    )
    from unisono._src.foundation.tensor_shape import TensorShape as TensorShape
    from unisono._src.ops.checks import (
        Assert as Assert,
        assert_equal as assert_equal,
        assert_greater as assert_greater,
        assert_less as assert_less,
    )
    from unisono._src.ops.matrices import (
        einsum as einsum,
        matmul as matmul,
        norm as norm,
        tensordot as tensordot,
    )
    from unisono._src.ops.scopes import device as device
    from unisono._src.ops.shape_checks import assert_rank as assert_rank
    from unisono._src.ops.text.numbers import as_string as as_string
    from unisono._src.saving.checkpoint.module import Module as Module
    from unisono.keras import initializers as initializers, losses as losses

    # Modules of everyday names, in the order of the search for one of them.
    # isort: off
    from unisono._src.ops.making import *  # noqa: F403
    from unisono._src.ops.arithmetic import *  # noqa: F403
    from unisono._src.ops.reductions import *  # noqa: F403
    from unisono._src.ops.shaping import *  # noqa: F403
    from unisono._src.ops.indexing import *  # noqa: F403
    from unisono._src.ops.sorting import *  # noqa: F403
    from unisono._src.ops.clipping import *  # noqa: F403
    from unisono._src.ops.element_types import *  # noqa: F403
    from unisono._src.ops.printing import *  # noqa: F403
    from unisono._src.ops.scopes import *  # noqa: F403
    from unisono._src.ops.execution_mode import *  # noqa: F403
    from unisono._src.ops.scopes import *  # noqa: F403
    from unisono._src.ops.control_flow import *  # noqa: F403
    from unisono._src.ops.mapping import *  # noqa: F403
    from unisono._src.ops.tensor_array import *  # noqa: F403
    from unisono._src.ops.custom_gradients import *  # noqa: F403
    from unisono._src.ops.host_functions import *  # noqa: F403
    from unisono._src.ops.initial_values import *  # noqa: F403
    # isort: on

_libraries.install()
_jax_arrays.install()
_lazy_names.install()

# Its only place: pyproject.toml has it read from this line, so it must be a literal.
__version__ = "0.1.0"

_lazy_names.serve(__name__)
