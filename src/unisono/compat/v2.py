"""Names of TensorFlow 2 under their compat path."""

from unisono import distribute
from unisono._src.function import function
from unisono._src.options import VariableAggregation, VariableSynchronization
from unisono._src.variables import Variable

__all__ = [
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "distribute",
    "function",
]
