"""TPUs, and grids of other devices."""

from unisono.tpu import experimental

__all__ = ["experimental"]
