"""The inputs of exported models, under the names of ``tf.estimator.export``."""

from unisono._src.estimator.exporting import (
    ServingInputReceiver,
    build_raw_serving_input_receiver_fn,
)

__all__ = ["ServingInputReceiver", "build_raw_serving_input_receiver_fn"]
