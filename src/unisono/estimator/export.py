"""What an exported model takes: TensorFlow's ``tf.estimator.export``."""

from unisono._src.estimator.exporting import (
    ServingInputReceiver,
    build_raw_serving_input_receiver_fn,
)

__all__ = ["ServingInputReceiver", "build_raw_serving_input_receiver_fn"]
