"""Names of ``tf.compat.v2`` that programs with strategies use."""

import typing as _typing

from unisono import distribute
from unisono._src.execution.function import function
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.state.variables import Variable

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.compat.v2", {})

__all__ = [
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "distribute",
    "function",
]
