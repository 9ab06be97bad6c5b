"""What Keras exports with TensorFlow alone."""

import importlib.util

import pytest

import unisono as tf

keras = pytest.importorskip("keras")


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is not None, reason="TensorFlow is here"
)
def test_export_says_what_to_write_without_tensorflow(tmp_path):
    tf.data.Dataset.range(1)  # Keras knows unisono from the first dataset on.
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(ImportError, match=r"unisono\.saved_model\.save\(model, path\)"):
        model.export(tmp_path / "model")
