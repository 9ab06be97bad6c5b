"""Mathematics, under its names in ``tf.math``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops import MODULES as _MODULES

if _typing.TYPE_CHECKING:
    from unisono._src.ops.activations import (
        l2_normalize,
        log_softmax,
        softmax,
        softplus,
        softsign,
        zero_fraction,
    )
    from unisono._src.ops.arithmetic import *  # noqa: F403
    from unisono._src.ops.mathematics import *  # noqa: F403
    from unisono._src.ops.reductions import *  # noqa: F403
    from unisono._src.ops.segments import *  # noqa: F403

# `make_lookups` adds those of the other modules.
__all__ = [
    "l2_normalize",
    "log_softmax",
    "softmax",
    "softplus",
    "softsign",
    "zero_fraction",
]

if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.math", {}, _MODULES["unisono.math"]
    )
