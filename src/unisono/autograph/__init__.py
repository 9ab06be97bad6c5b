"""Names of ``tf.autograph``, which has nothing to do here.

`unisono.function` traces Python code as it is. A line that autograph would rewrite is
an error, which says what to write.
"""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.execution_mode import set_verbosity
from unisono.autograph import experimental

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.autograph", {})

__all__ = ["experimental", "set_verbosity"]
