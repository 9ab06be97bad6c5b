"""Exporting and loading models: TensorFlow's ``tf.saved_model``."""

from unisono._src.saving.export.loader import load
from unisono._src.saving.export.saver import SaveOptions, save

__all__ = ["SaveOptions", "load", "save"]
