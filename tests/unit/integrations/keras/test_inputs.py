"""Layers of Keras adapt to datasets of unisono, without TensorFlow."""

import numpy as np
import pytest

import unisono as tf

keras = pytest.importorskip("keras")

X = np.arange(24, dtype=np.float32).reshape(8, 3) ** 1.5
Rows = tf.data.Dataset.from_tensor_slices


@pytest.mark.parametrize(
    "make",
    [
        lambda: X,
        lambda: Rows(X).batch(3),
        lambda: Rows(X),
        lambda: Rows((X, X[:, 0])).batch(3),
        lambda: [X[:3], X[3:]],
        lambda: iter([X[:3], X[3:]]),
    ],
)
def test_normalization_adapts_to_what_tensorflow_takes(make):
    layer = keras.layers.Normalization()
    layer.adapt(make())
    # TensorFlow's numbers.
    means, variances = [39.8948, 44.5029, 49.4177], [1054.402, 1170.489, 1282.887]
    np.testing.assert_allclose(np.ravel(layer.mean), means, 1e-5)
    np.testing.assert_allclose(np.ravel(layer.variance), variances, 1e-5)


@pytest.mark.parametrize(
    "make", [lambda x: x, lambda x: Rows(x).batch(4), lambda x: [x[:4], x[4:]]]
)
def test_discretization_adapts_to_what_tensorflow_takes(make):
    layer = keras.layers.Discretization(num_bins=3)
    layer.adapt(make(X[:, 0]))
    np.testing.assert_allclose(layer.bin_boundaries, [11.53, 47.078], 1e-3)


@pytest.mark.parametrize(
    ("layer", "mean"),
    [
        (lambda layers: layers.Resizing(4, 4), 121.59375),
        (lambda layers: layers.Resizing(4, 4, interpolation="nearest"), 103.5),
        (lambda layers: layers.CenterCrop(3, 3), 135.666667),
        (lambda layers: layers.RandomGrayscale(1.0), 122.787694),
        (lambda layers: layers.Rescaling(1 / 255), 0.481569),
    ],
)
def test_preprocessing_layers_convert_elements_of_datasets(layer, mean):
    # Recorded from TensorFlow 2.21: outside datasets integers stay what they are.
    image = np.full((5, 5, 3), 7, np.uint8)
    image[2:] = 200
    made = layer(tf.keras.layers)
    dataset = tf.data.Dataset.from_tensors(image).map(lambda x: made(x) - 100)
    (found,) = dataset
    assert found.dtype == dataset.element_spec.dtype == np.float32
    assert np.mean(found) + 100 == pytest.approx(mean, abs=1e-4)
