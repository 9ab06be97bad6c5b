"""Names of ``tf.compat.v1`` that programs with strategies use."""

from unisono import distribute
from unisono._src.state.variables import Variable, get_variable

__all__ = ["Variable", "distribute", "get_variable"]
