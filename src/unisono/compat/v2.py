"""Names of ``tf.compat.v2`` that programs with strategies use."""

from unisono import distribute as distribute
from unisono._src.execution.function_decorator import function as function
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.options import (
    VariableAggregation as VariableAggregation,
    VariableSynchronization as VariableSynchronization,
)
from unisono._src.state.variables import Variable as Variable

_lazy_names.serve(__name__)
