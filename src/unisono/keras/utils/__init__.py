"""The package of `experimental`."""

from unisono.keras.utils import experimental

__all__ = ["experimental"]
