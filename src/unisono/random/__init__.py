"""Random numbers, generators and their state: names of ``tf.random``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.random_draws import *  # noqa: F403
from unisono._src.ops.random_state import set_seed as set_seed
from unisono._src.ops.stateless_draws import *  # noqa: F403
from unisono._src.training.random_generator import (
    Algorithm as Algorithm,
    Generator as Generator,
    create_rng_state as create_rng_state,
    get_global_generator as get_global_generator,
    set_global_generator as set_global_generator,
)
from unisono.random import experimental as experimental

_lazy_names.serve(__name__)
