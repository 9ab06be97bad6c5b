"""`BatchNormalization(synchronized=True)`, on parts of a batch and on whole ones.

The numbers of `fit` are compared with TensorFlow's in test_replica_steps.
"""

import keras
import numpy as np
import pytest

import unisono as tf

X = np.random.RandomState(0).rand(7, 3).astype("float32")


@pytest.mark.parametrize("compiled", [True, False])
def test_uneven_parts_have_the_statistics_of_their_whole(compiled):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        layer = keras.layers.BatchNormalization(synchronized=True, momentum=0.0)
        layer.build((None, 3))

    def step(parts):
        return strategy.run(lambda x: layer(x, training=True), args=(parts,))

    data = tf.data.Dataset.from_tensor_slices(X).batch(8)
    (parts,) = strategy.experimental_distribute_dataset(data)
    found = strategy.gather((tf.function(step) if compiled else step)(parts), axis=0)
    np.testing.assert_allclose(layer.moving_mean, X.mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, X.var(0), rtol=1e-5)
    wanted = (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-3)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_whole_batch_has_its_own_statistics(tmp_path):
    layer = keras.layers.BatchNormalization(synchronized=True)
    model = keras.Sequential([keras.Input((3,)), layer])
    plain = keras.layers.BatchNormalization()
    np.testing.assert_array_equal(model(X, training=True), plain(X, training=True))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].synchronized and not plain.synchronized


def test_half_precision_keeps_its_type():
    half = X.astype("float16")
    mean, variance = keras.ops.moments(half, axes=[0], synchronized=True)
    assert mean.dtype == variance.dtype == "float16"


def test_the_layer_of_keras_2_is_told():
    with pytest.raises(AttributeError, match="synchronized=True"):
        _ = tf.keras.layers.experimental.SyncBatchNormalization
