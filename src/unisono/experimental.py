"""`Optional`, an element or none, under its name in ``tf.experimental``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.api.iterators import Optional as Optional

_lazy_names.serve(__name__)
