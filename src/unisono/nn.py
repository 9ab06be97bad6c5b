"""Neural networks, under their names in ``tf.nn``, and losses by the global batch."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.facades import nn as _everyday
from unisono._src.training.nn import compute_average_loss, scale_regularization_loss

if _typing.TYPE_CHECKING:
    from unisono._src.ops.facades.nn import *  # noqa: F403

if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.nn", _everyday.PLACES)

__all__ = [
    "compute_average_loss",
    "scale_regularization_loss",
    *_everyday.__all__,
]
