"""Mathematical functions, under their names in ``tf.math``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.activations import (
        l2_normalize as l2_normalize,
        log_softmax as log_softmax,
        softmax as softmax,
        softplus as softplus,
        softsign as softsign,
        zero_fraction as zero_fraction,
    )
    from unisono._src.ops.arithmetic import *  # noqa: F403
    from unisono._src.ops.mathematics import *  # noqa: F403
    from unisono._src.ops.reductions import *  # noqa: F403
    from unisono._src.ops.segments import *  # noqa: F403

_lazy_names.serve(__name__)
