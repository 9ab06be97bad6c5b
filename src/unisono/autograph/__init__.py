"""Names of ``tf.autograph``, which has nothing to do here.

`unisono.function` traces Python code as it is. A line that autograph would rewrite is
an error, which says what to write.
"""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.execution_mode import set_verbosity as set_verbosity
from unisono.autograph import experimental as experimental

_lazy_names.serve(__name__)
