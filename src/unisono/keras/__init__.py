"""The packages that Keras programs under a strategy may use."""

from unisono.keras import callbacks, utils

__all__ = ["callbacks", "utils"]
