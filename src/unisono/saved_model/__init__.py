"""Functions that export and load models, under the names of ``tf.saved_model``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.saving.export.loader import (
    LoadOptions as LoadOptions,
    contains_saved_model as contains_saved_model,
    load as load,
)
from unisono._src.saving.export.saver import (
    DEFAULT_SERVING_SIGNATURE_DEF_KEY as DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    SaveOptions as SaveOptions,
    save as save,
)

_lazy_names.serve(__name__)
