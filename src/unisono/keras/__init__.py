"""What a Keras program under a strategy may add."""

from unisono.keras import callbacks

__all__ = ["callbacks"]
