"""Optimizers over variables, built on Optax."""

from unisono._src.optimizers import Optimizer

__all__ = ["Optimizer"]
