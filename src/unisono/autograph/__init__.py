"""Names of ``tf.autograph``: Python statements that depend on arrays.

`unisono.function` traces Python code as it is. If a line needs a value that is only
known when the step runs, AutoGraph converts the function.
"""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.execution_mode import set_verbosity as set_verbosity
from unisono.autograph import experimental as experimental

_lazy_names.serve(__name__)
