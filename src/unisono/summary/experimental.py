"""The default step of summaries, under the names of ``tf.summary.experimental``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.summary import get_step as get_step, set_step as set_step

_lazy_names.serve(__name__)
