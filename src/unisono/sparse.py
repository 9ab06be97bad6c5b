"""`to_dense`, for the arrays of `VarLenFeature`, under its name in ``tf.sparse``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.records.padded import *  # noqa: F403

_lazy_names.serve(__name__)
