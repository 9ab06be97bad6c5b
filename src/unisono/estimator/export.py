"""The inputs of exported models, under the names of ``tf.estimator.export``."""

import typing as _typing

from unisono._src.estimator.exporting import (
    ServingInputReceiver,
    build_raw_serving_input_receiver_fn,
)
from unisono._src.foundation import lazy_names as _lazy_names

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.estimator.export", {})

__all__ = ["ServingInputReceiver", "build_raw_serving_input_receiver_fn"]
