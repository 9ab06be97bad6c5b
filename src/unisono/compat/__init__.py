"""TensorFlow's names for older programs: ``compat.v1`` and ``compat.v2``."""

from unisono.compat import v1, v2

__all__ = ["v1", "v2"]
