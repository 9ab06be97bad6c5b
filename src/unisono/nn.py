"""Functions that scale losses by the global batch, under their names in ``tf.nn``."""

from unisono._src.training.nn import compute_average_loss, scale_regularization_loss

__all__ = ["compute_average_loss", "scale_regularization_loss"]
