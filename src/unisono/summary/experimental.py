"""The default step: TensorFlow's ``tf.summary.experimental``."""

from unisono._src.training.tensorboard.summary import get_step, set_step

__all__ = ["get_step", "set_step"]
