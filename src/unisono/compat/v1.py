"""Names of TensorFlow 1 that programs with strategies use."""

from unisono import distribute

__all__ = ["distribute"]
