"""A Keras `fit` that may be killed at any moment and goes on from its last backup.

usage: python keras_training.py DIRECTORY INPUT [EPOCHS]

Prints "running" when steps are being made, and at the end the state as JSON.
"""

import json
import os
import sys
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import keras
import numpy as np
from keras import layers

import unisono as uni

EXAMPLES, BATCH = 90, 8  # The last batch of twelve is uneven.


def source(how):
    """Returns the arguments of `fit`; NumPy's random numbers differ between runs."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(EXAMPLES, 6)).astype("float32")
    y = rng.integers(0, 3, EXAMPLES).astype("int32")
    if how == "arrays":
        return {"x": x, "y": y, "batch_size": BATCH}
    rows = uni.data.Dataset.from_tensor_slices((x, y))
    rows = rows.map(lambda x, y: (x * 2, y), num_parallel_calls=2)
    return {"x": rows.shuffle(30, seed=7).batch(BATCH).prefetch(2)}


class Telling(keras.callbacks.Callback):
    """Says that steps are made, and takes its time, so that one can be interrupted."""

    def on_train_batch_end(self, batch, logs=None):
        print("running", flush=True)
        time.sleep(0.02)


def main(directory, how, epochs):
    uni.config.set_virtual_devices(2)
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential(
            [
                layers.Input((6,)),
                layers.Dense(8, activation="relu"),
                layers.BatchNormalization(),
                layers.Dropout(0.3),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    if uni.train.latest_checkpoint(directory):
        # What a run that goes on draws by itself does not count.
        np.random.seed(int(time.time()))
    backup = uni.keras.callbacks.BackupAndRestore(directory, save_freq=2)
    history = model.fit(
        epochs=epochs, verbose=0, callbacks=[backup, Telling()], **source(how)
    )
    weights = [np.asarray(w).tobytes().hex() for w in model.get_weights()]
    print(
        json.dumps(
            {
                "weights": weights,
                "steps": int(model.optimizer.iterations),
                "loss": history.history["loss"][-1],
                "accuracy": history.history["accuracy"][-1],
                "epoch": history.epoch[-1],
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 3)
