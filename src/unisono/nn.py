"""Losses that are right under distribution."""

from unisono._src.training.nn import compute_average_loss, scale_regularization_loss

__all__ = ["compute_average_loss", "scale_regularization_loss"]
