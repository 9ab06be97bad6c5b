"""Loading takes TensorFlow's options."""

import pytest

import unisono as tf


def test_models_are_saved_and_loaded_with_the_options_of_tensorflow(tmp_path):
    local = "/job:localhost"
    saving = tf.saved_model.SaveOptions(experimental_io_device=local)
    loading = tf.saved_model.LoadOptions(experimental_io_device=local)
    module = tf.Module()
    module.v = tf.Variable(3.0)
    tf.saved_model.save(module, tmp_path / "m", options=saving)
    assert tf.saved_model.load(tmp_path / "m", options=loading).v.numpy() == 3


def test_values_cannot_be_left_out():
    with pytest.raises(ValueError, match="without values"):
        tf.saved_model.LoadOptions(experimental_skip_checkpoint=True)
