"""Assertions about values, shapes and types: the names of ``tf.debugging``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops import checks as _checks
from unisono._src.ops import shape_checks as _shape_checks
from unisono._src.ops.checks import *  # noqa: F403
from unisono._src.ops.shape_checks import *  # noqa: F403

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.debugging", {})

__all__ = [*_checks.__all__, *_shape_checks.__all__]
