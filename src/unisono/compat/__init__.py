"""The packages `v1` and `v2`, with TensorFlow's names for older programs."""

from unisono.compat import v1, v2

__all__ = ["v1", "v2"]
