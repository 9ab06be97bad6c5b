"""Functions for text, under their names in ``tf.strings``; they run on the host."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.text.numbers import *  # noqa: F403
    from unisono._src.ops.text.strings import *  # noqa: F403

_lazy_names.serve(__name__)
