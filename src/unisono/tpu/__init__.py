"""TPUs, and grids of other devices."""

from unisono._src.foundation.options import XLAOptions
from unisono.tpu import experimental

__all__ = ["XLAOptions", "experimental"]
