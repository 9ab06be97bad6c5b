"""`check_parity` runs the step of a Keras model, and `fit`; others see its batches."""

import numpy as np
import pytest

import unisono as uni
from tests import machine

keras = pytest.importorskip("keras")


def test_a_keras_model_is_checked_by_train_on_batch_or_fit_and_fits_afterwards():
    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    rng = np.random.RandomState(0)
    x, y = rng.randn(8, 3).astype("f"), rng.randn(8, 1).astype("f")

    def check(step):
        return uni.testing.check_parity(
            step, [(x, y)] * 2, (1, 2), strategy=strategy, distribute=False
        )

    assert check(lambda x, y: model.train_on_batch(x, y))
    model.fit(x, y, verbose=0)
    before, history = [v.numpy() for v in model.variables], model.history
    assert check(lambda x, y: model.fit(x, y, shuffle=False, verbose=0).history)
    assert model.history is history
    for a, b in zip(model.variables, before):
        np.testing.assert_array_equal(a.numpy(), b)
    model.fit(x, y, verbose=0)


def test_a_step_of_fit_that_counts_the_loss_per_replica_is_found():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with uni.GradientTape() as tape:
                loss = uni.reduce_mean((self(x) - y) ** 2)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    with strategy.scope():
        model = Model()
        model.compile("adam")
    batches = [(np.random.rand(8, 3).astype("f"), np.ones((8, 1), "f"))]
    report = uni.testing.check_parity(
        lambda x, y: model.fit(x, y, shuffle=False, verbose=0).history,
        batches,
        (1, 2),
        strategy=strategy,
        distribute=False,
    )
    assert report.cause.code == "times-n" and report.differences[0].kind == "gradient"
