"""Linear algebra, under its names in ``tf.linalg``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.activations import l2_normalize as l2_normalize
    from unisono._src.ops.decompositions import *  # noqa: F403
    from unisono._src.ops.making import eye as eye
    from unisono._src.ops.matrices import *  # noqa: F403

_lazy_names.serve(__name__)
