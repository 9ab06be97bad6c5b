"""What a training program needs around its steps, at TensorFlow's names."""

from unisono._src.cluster.spec import ClusterSpec

__all__ = ["ClusterSpec"]
