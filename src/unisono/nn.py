"""Embedding lookups and scaled losses, under their names in ``tf.nn``."""

from unisono._src.training.embedding import embedding_lookup
from unisono._src.training.nn import compute_average_loss, scale_regularization_loss

__all__ = ["compute_average_loss", "embedding_lookup", "scale_regularization_loss"]
