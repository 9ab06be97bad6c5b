"""Element types, which are NumPy's, and `as_dtype`: names of ``tf.dtypes``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.dtypes import *  # noqa: F403
from unisono._src.ops.element_types import DType as DType, as_dtype as as_dtype

_lazy_names.serve(__name__)
