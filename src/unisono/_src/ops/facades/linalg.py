"""The everyday names of ``tf.linalg`` and where each is found."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.names.arrays import eye
    from unisono._src.ops.names.maths import global_norm

PLACES = _lazy_names.spread(
    {
        "unisono._src.ops.names.arrays": ("eye"),
        "unisono._src.ops.names.maths": ("global_norm"),
    }
)
__all__ = [
    "eye",
    "global_norm",
]
