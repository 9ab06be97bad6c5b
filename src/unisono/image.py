"""Images, under their names in ``tf.image``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.images.boxes import *  # noqa: F403
    from unisono._src.ops.images.colours import *  # noqa: F403
    from unisono._src.ops.images.decoding import *  # noqa: F403
    from unisono._src.ops.images.geometry import *  # noqa: F403
    from unisono._src.ops.images.random_changes import *  # noqa: F403
    from unisono._src.ops.images.resizing import *  # noqa: F403

_lazy_names.serve(__name__)
