"""Names of ``tf.autograph.experimental``: options of the conversion."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.execution_mode import (
    do_not_convert as do_not_convert,
    set_loop_options as set_loop_options,
)

_lazy_names.serve(__name__)
