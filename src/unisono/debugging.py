"""Assertions about values, shapes and types: the names of ``tf.debugging``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.checks import *  # noqa: F403
from unisono._src.ops.shape_checks import *  # noqa: F403

_lazy_names.serve(__name__)
