"""Functions for neural networks, as in ``tf.nn``, and losses by the global batch."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.nn import (
    compute_average_loss as compute_average_loss,
    scale_regularization_loss as scale_regularization_loss,
)

if _typing.TYPE_CHECKING:
    from unisono._src.ops.activations import *  # noqa: F403
    from unisono._src.ops.arithmetic import sigmoid as sigmoid, tanh as tanh
    from unisono._src.ops.convolutions import *  # noqa: F403
    from unisono._src.ops.segments import in_top_k as in_top_k, top_k as top_k
    from unisono._src.ops.windows import *  # noqa: F403

_lazy_names.serve(__name__)
