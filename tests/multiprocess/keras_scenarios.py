"""What workers are told to run with Keras; as in `scenarios`."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import unisono as uni
from tests.multiprocess.scenarios import plain

layers = keras.layers


def data(count):
    """Returns inputs and integer labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 5)).astype("float32")
    return x, rng.integers(0, 3, count).astype("int32")


def model_of(strategy, optimizer="adam"):
    """Makes a compiled model, the same on every call."""
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                layers.Input((5,)),
                layers.Dense(4, activation="relu"),
                layers.BatchNormalization(),
                layers.Dropout(0.2),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def source(strategy, how, x, y, batch):
    """Returns the arguments of `fit` for one kind of input."""
    if how == "arrays":
        return {"x": x, "y": y, "batch_size": batch, "shuffle": True}
    made = uni.data.Dataset.from_tensor_slices((x, y)).shuffle(50, seed=4).batch(batch)
    if how == "distributed":
        made = strategy.experimental_distribute_dataset(made)
    return {"x": made}


def fit(s, w, how="arrays", count=19, batch=8, seed=None):
    """Fits, evaluates and predicts; returns all that comes out."""
    x, y = data(count)
    model = model_of(s)
    # Other numbers than the chief's, which must not matter.
    np.random.seed(100 + w if seed is None else seed)
    given = source(s, how, x, y, batch)
    history = model.fit(epochs=2, verbose=2, **given).history
    return plain(
        {
            "history": history,
            "evaluate": model.evaluate(x, y, batch_size=batch, verbose=0),
            "predict": model.predict(x, batch_size=batch, verbose=0),
            "weights": model.get_weights(),
        }
    )
