"""Names of ``tf.experimental``: `Optional`, and asynchronous execution."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.api.iterators import Optional as Optional

# Loaded on first use, as all everyday names are.
if _typing.TYPE_CHECKING:
    from unisono._src.ops.asynchronous import *  # noqa: F403

_lazy_names.serve(__name__)
