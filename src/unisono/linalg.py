"""Linear algebra, under its names in ``tf.linalg``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops import MODULES as _MODULES

if _typing.TYPE_CHECKING:
    from unisono._src.ops.activations import l2_normalize
    from unisono._src.ops.decompositions import *  # noqa: F403
    from unisono._src.ops.making import eye
    from unisono._src.ops.matrices import *  # noqa: F403

# `make_lookups` adds those of the other modules.
__all__ = ["eye", "l2_normalize"]

if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.linalg", {}, _MODULES["unisono.linalg"]
    )
