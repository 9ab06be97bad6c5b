"""The packages `v1` and `v2`, with TensorFlow's names for older programs."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono.compat import v1, v2

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.compat", {})

__all__ = ["v1", "v2"]
