"""The everyday names of ``tf.nn`` and where each is found."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.names.indexing import in_top_k, top_k
    from unisono._src.ops.names.maths import sigmoid, tanh

PLACES = _lazy_names.spread(
    {
        "unisono._src.ops.names.indexing": ("in_top_k top_k"),
        "unisono._src.ops.names.maths": ("sigmoid tanh"),
    }
)
__all__ = [
    "in_top_k",
    "sigmoid",
    "tanh",
    "top_k",
]
