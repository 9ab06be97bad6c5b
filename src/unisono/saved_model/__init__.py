"""Exporting and loading models: TensorFlow's ``tf.saved_model``."""

from unisono._src.saved_model.loading import load
from unisono._src.saved_model.saving import SaveOptions, save

__all__ = ["SaveOptions", "load", "save"]
