"""Options for TPUs and grids of other devices, under the names of ``tf.tpu``."""

from unisono._src.foundation.options import XLAOptions
from unisono.tpu import experimental

__all__ = ["XLAOptions", "experimental"]
