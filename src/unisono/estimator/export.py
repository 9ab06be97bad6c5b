"""The inputs of exported models, under the names of ``tf.estimator.export``."""

from unisono._src.estimator.exporting import (
    ServingInputReceiver as ServingInputReceiver,
    build_raw_serving_input_receiver_fn as build_raw_serving_input_receiver_fn,
)
from unisono._src.foundation import lazy_names as _lazy_names

_lazy_names.serve(__name__)
