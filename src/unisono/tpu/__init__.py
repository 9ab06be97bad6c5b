"""Options for TPUs and grids of other devices, under the names of ``tf.tpu``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.options import XLAOptions as XLAOptions
from unisono.tpu import experimental as experimental

_lazy_names.serve(__name__)
