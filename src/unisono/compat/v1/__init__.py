"""Names of ``tf.compat.v1`` that programs with strategies use."""

import typing as _typing

from unisono import distribute
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.state.named_variables import get_variable
from unisono._src.state.variables import Variable

if _typing.TYPE_CHECKING:
    from unisono._src.cluster.session_config import ConfigProto
    from unisono.compat.v1 import data, train

# Loaded on first use: not every program reads or saves.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.compat.v1",
        {
            "ConfigProto": "unisono._src.cluster.session_config",
            "data": "unisono.compat.v1",
            "train": "unisono.compat.v1",
        },
    )

__all__ = [
    "ConfigProto",
    "Variable",
    "data",
    "distribute",
    "get_variable",
    "train",
]
