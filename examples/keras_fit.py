"""Fits a Keras model on one device and on several replicas; the numbers are the same.

usage: python examples/keras_fit.py [--replicas 4] [--epochs 3] [--images 1500]

What changed from tf.distribute:

| TensorFlow                                  | here                                   |
| ------------------------------------------- | -------------------------------------- |
| `import tensorflow as tf`                   | `import unisono as uni`                |
| `tf.distribute.MirroredStrategy()`          | `uni.distribute.MirroredStrategy()`    |
| `with strategy.scope():` around the model   | the same                               |
| `compile`, `fit`, `evaluate`, `predict`     | the same, with `KERAS_BACKEND=jax`     |
| an uneven last batch changes the weights    | it does not                            |
| `BatchNormalization` per replica in `fit`   | over the whole batch, as on one device |
"""

import argparse
import os
import pathlib
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np

import unisono as uni

DATA = pathlib.Path(__file__).parent / "data" / "digits.npz"
GLOBAL_BATCH = 64


def load_digits(count):
    """Returns images as 8×8 pixels from 0 to 1, and their labels."""
    with np.load(DATA, allow_pickle=False) as arrays:
        images = arrays["images"].astype(np.float32)[..., None] / 16
        labels = arrays["labels"].astype(np.int32)
    return images[:count], labels[:count]


def make_model(keras):
    """Returns a compiled convolutional network; the same on every call."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.2, seed=1),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=1500)
    given = parser.parse_args()
    strategy = uni.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(given.replicas)]
    )
    import keras

    x, y = load_digits(given.images)
    fit = {"batch_size": GLOBAL_BATCH, "epochs": given.epochs, "verbose": 0}
    fit |= {"shuffle": False, "validation_split": 0.1}

    alone = make_model(keras)
    with strategy.scope():
        model = make_model(keras)
    losses = [m.fit(x, y, **fit).history["val_loss"] for m in (alone, model)]
    for epoch, pair in enumerate(zip(*losses)):
        print(f"epoch {epoch}: validation loss {pair[0]:.6f} and {pair[1]:.6f}")
    assert np.allclose(*losses, rtol=1e-3), losses
    print(strategy.describe(model))

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "digits.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
    same = np.allclose(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-4
    )
    print(f"saved on {given.replicas} replicas, loaded on one device: {same=}")
    assert same


if __name__ == "__main__":
    main()
