"""Names of ``tf.compat.v1`` that programs with strategies use."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.state.named_variables import get_variable as get_variable
from unisono._src.state.variables import Variable as Variable
from unisono.compat.v1 import distribute as distribute

# Loaded on first use: not every program reads or saves.
if _typing.TYPE_CHECKING:
    from unisono import io as io
    from unisono._src.cluster.session_config import ConfigProto as ConfigProto
    from unisono.compat.v1 import data as data, train as train

    # Since TensorFlow 2 these are in ``tf.io`` alone.
    from unisono.io import (
        FixedLenFeature as FixedLenFeature,
        FixedLenSequenceFeature as FixedLenSequenceFeature,
        VarLenFeature as VarLenFeature,
        decode_raw as decode_raw,
        parse_example as parse_example,
        parse_single_example as parse_single_example,
        parse_single_sequence_example as parse_single_sequence_example,
        parse_tensor as parse_tensor,
        serialize_tensor as serialize_tensor,
    )

_lazy_names.serve(__name__)
