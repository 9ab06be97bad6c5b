"""Packages `v1` and `v2` for older programs, and conversions of text and bytes."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.text_forms import (
    as_bytes as as_bytes,
    as_str_any as as_str_any,
    as_text as as_text,
    dimension_value as dimension_value,
    path_to_str as path_to_str,
)
from unisono.compat import v1 as v1, v2 as v2

as_str = as_text

_lazy_names.serve(__name__)
