"""`check_parity` runs the step of a Keras model; `fit` is refused."""

import numpy as np
import pytest

import unisono as uni
from tests import machine

keras = pytest.importorskip("keras")


def test_a_keras_model_is_checked_by_train_on_batch_and_fits_afterwards():
    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    rng = np.random.RandomState(0)
    x, y = rng.randn(8, 3).astype("f"), rng.randn(8, 1).astype("f")
    before = [v.numpy() for v in model.weights]

    def check(step):
        return uni.testing.check_parity(
            step, [(x, y)] * 2, (1, 2), strategy=strategy, distribute=False
        )

    assert check(lambda x, y: model.train_on_batch(x, y))
    with pytest.raises(NotImplementedError, match="train_on_batch"):
        check(lambda x, y: model.fit(x, y))
    for a, b in zip(model.weights, before):
        np.testing.assert_array_equal(a.numpy(), b)
    model.fit(x, y, verbose=0)
