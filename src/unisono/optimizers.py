"""Optimizers over variables, built on Optax."""

from unisono._src.training.optimizers import Optimizer

__all__ = ["Optimizer"]
