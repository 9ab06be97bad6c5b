"""The default step of summaries, under the names of ``tf.summary.experimental``."""

from unisono._src.training.tensorboard.summary import get_step, set_step

__all__ = ["get_step", "set_step"]
