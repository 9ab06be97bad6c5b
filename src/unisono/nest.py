"""Functions over nested structures: the names of ``tf.nest``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops.structures import (
    assert_same_structure as assert_same_structure,
    flatten as flatten,
    is_nested as is_nested,
    map_structure as map_structure,
    pack_sequence_as as pack_sequence_as,
)

_lazy_names.serve(__name__)
