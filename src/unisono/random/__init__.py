"""Random numbers: TensorFlow's ``tf.random``, its generators and their state."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops import random_draws as _random_draws
from unisono._src.ops import stateless_draws as _stateless_draws
from unisono._src.ops.random_draws import *  # noqa: F403
from unisono._src.ops.random_state import set_seed
from unisono._src.ops.stateless_draws import *  # noqa: F403
from unisono._src.training.random_generator import (
    Algorithm,
    Generator,
    create_rng_state,
    get_global_generator,
    set_global_generator,
)
from unisono.random import experimental

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.random", {})

__all__ = [
    *_random_draws.__all__,
    *_stateless_draws.__all__,
    "Algorithm",
    "Generator",
    "create_rng_state",
    "experimental",
    "get_global_generator",
    "set_global_generator",
    "set_seed",
]
