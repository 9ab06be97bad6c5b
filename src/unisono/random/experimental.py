"""Generators and seeds by TensorFlow's older names, and `stateless_shuffle`."""

from unisono._src.ops.random_draws import fold_in, split, stateless_shuffle
from unisono._src.training.random_generator import (
    Algorithm,
    Generator,
    create_rng_state,
    get_global_generator,
    set_global_generator,
)

stateless_fold_in = fold_in
stateless_split = split

__all__ = [
    "Algorithm",
    "Generator",
    "create_rng_state",
    "get_global_generator",
    "set_global_generator",
    "stateless_fold_in",
    "stateless_shuffle",
    "stateless_split",
]
