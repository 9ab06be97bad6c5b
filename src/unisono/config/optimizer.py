"""Settings of TensorFlow's graph optimizer; XLA needs none of them."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines.runtime_settings import (
    get_experimental_options,
    get_jit,
    set_experimental_options,
    set_jit,
)

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.config.optimizer", {})

__all__ = [
    "get_experimental_options",
    "get_jit",
    "set_experimental_options",
    "set_jit",
]
