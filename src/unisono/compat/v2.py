"""Names of ``tf.compat.v2`` that programs with strategies use."""

from unisono import distribute
from unisono._src.execution.function import function
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.state.variables import Variable

__all__ = [
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "distribute",
    "function",
]
