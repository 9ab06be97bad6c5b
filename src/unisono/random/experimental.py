"""The same generators by TensorFlow's older names."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.random_generator import (
    Algorithm,
    Generator,
    create_rng_state,
    get_global_generator,
    set_global_generator,
)

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.names("unisono.random.experimental", {})

__all__ = [
    "Algorithm",
    "Generator",
    "create_rng_state",
    "get_global_generator",
    "set_global_generator",
]
