"""The package of `callbacks`, which Keras programs under a strategy may use."""

from unisono.keras import callbacks

__all__ = ["callbacks"]
