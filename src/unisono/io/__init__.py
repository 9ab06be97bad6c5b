"""Files, records of features, images and lines of CSV, as in ``tf.io``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.sources.compressions import TFRecordOptions as TFRecordOptions
from unisono._src.input.sources.files import TFRecordWriter as TFRecordWriter
from unisono.io import gfile as gfile

if _typing.TYPE_CHECKING:
    from unisono._src.ops.images.decoding import *  # noqa: F403
    from unisono._src.ops.images.files import *  # noqa: F403
    from unisono._src.ops.records.features import *  # noqa: F403
    from unisono._src.ops.records.parsing import *  # noqa: F403
    from unisono._src.ops.records.raw_bytes import *  # noqa: F403
    from unisono._src.ops.records.tensor_protos import *  # noqa: F403
    from unisono._src.ops.text.csv_lines import *  # noqa: F403

_lazy_names.serve(__name__)
