"""Lookup tables, under their names in ``tf.lookup``; they run on the host."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.text.tables import *  # noqa: F403

_lazy_names.serve(__name__)
