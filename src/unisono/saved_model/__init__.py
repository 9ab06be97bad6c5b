"""Functions that export and load models, under the names of ``tf.saved_model``."""

from unisono._src.saving.export.loader import LoadOptions, load
from unisono._src.saving.export.saver import SaveOptions, save

__all__ = ["LoadOptions", "SaveOptions", "load", "save"]
