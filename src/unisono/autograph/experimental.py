"""Names of ``tf.autograph.experimental``, which change nothing here."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.execution_mode import do_not_convert, set_loop_options

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.autograph.experimental", {}
    )

__all__ = ["do_not_convert", "set_loop_options"]
