"""Mathematics, under its names in ``tf.math``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.facades import math as _everyday

if _typing.TYPE_CHECKING:
    from unisono._src.ops.facades.math import *  # noqa: F403

if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.math", _everyday.PLACES)

__all__ = [*_everyday.__all__]
