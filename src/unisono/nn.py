"""Neural networks, under their names in ``tf.nn``, and losses by the global batch."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops import MODULES as _MODULES
from unisono._src.training.nn import compute_average_loss, scale_regularization_loss

if _typing.TYPE_CHECKING:
    from unisono._src.ops.activations import *  # noqa: F403
    from unisono._src.ops.arithmetic import sigmoid as sigmoid
    from unisono._src.ops.arithmetic import tanh as tanh
    from unisono._src.ops.convolutions import *  # noqa: F403
    from unisono._src.ops.pooling import *  # noqa: F403
    from unisono._src.ops.segments import in_top_k as in_top_k
    from unisono._src.ops.segments import top_k as top_k

__all__ = ["compute_average_loss", "scale_regularization_loss"]

if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.nn", {}, _MODULES["unisono.nn"]
    )
