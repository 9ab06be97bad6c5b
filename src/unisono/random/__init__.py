"""Random numbers: TensorFlow's ``tf.random.Generator`` and its state."""

from unisono._src.training.random_generator import (
    Algorithm,
    Generator,
    create_rng_state,
    get_global_generator,
    set_global_generator,
)
from unisono.random import experimental

__all__ = [
    "Algorithm",
    "Generator",
    "create_rng_state",
    "experimental",
    "get_global_generator",
    "set_global_generator",
]
