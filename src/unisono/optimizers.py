"""`Optimizer`, which applies an Optax transformation to variables."""

from unisono._src.training.optimizers import Optimizer

__all__ = ["Optimizer"]
