"""The packages `v1` and `v2`, with TensorFlow's names for older programs."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono.compat import v1 as v1, v2 as v2

_lazy_names.serve(__name__)
