"""Fits a Keras model on several workers, and resumes after a worker has failed.

usage: unisono launch -n 2 --restarts 2 examples/multi_worker_keras.py [--fail-at 20]

Every worker runs this program. With ``--fail-at`` one of them ends without warning
after that many steps. The launcher then starts all of them again. Training resumes from
the last backup, in the middle of an epoch, and ends with the same weights as a run
without a failure.

Only the line that imports TensorFlow differs from a program for TensorFlow. As in
TensorFlow, the strategy is created first, because it connects the workers. Only the
chief saves the model.
"""

import argparse
import os
import pathlib
import tempfile

import common
import numpy as np

import unisono as tf

BATCH_PER_WORKER = 32


def load_digits(count):
    """Returns images with pixels from 0 to 1, and their labels."""
    images, labels = common.load_digits(count)
    return images / np.float32(16), labels


def make_model():
    """Returns a compiled convolutional network; the same on every call."""
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.2),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(learning_rate=5e-3),
        metrics=["accuracy"],
    )
    return model


def failing(steps, worker):
    """Returns a callback that ends the second worker after some steps, but only once.

    The workers that the launcher starts again do not fail.
    """
    is_first = os.environ.get("UNISONO_RESTART", "0") == "0"

    class Failing(tf.keras.callbacks.Callback):
        left = steps if is_first and worker == 1 else 0

        def on_train_batch_end(self, batch, logs=None):
            self.left -= 1
            if self.left == 0:
                print("worker 1 fails now", flush=True)
                os._exit(1)

    return Failing()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--fail-at", type=int, default=0, metavar="STEPS")
    parser.add_argument("--directory", default=None, help="of backups and the model")
    given = parser.parse_args()

    # This must come before any use of JAX, because it connects the workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id or 0
    workers = len(strategy.cluster_resolver.cluster_spec().as_dict().get("worker", [0]))

    # All workers must see the same directory.
    folder = pathlib.Path(given.directory or tempfile.gettempdir(), "unisono_digits")
    x, y = load_digits(given.images)
    test = (x[-200:], y[-200:])
    train = tf.data.Dataset.from_tensor_slices((x[:-200], y[:-200]))
    # The batch size is the global one; each worker takes its part of every batch.
    train = train.shuffle(1000, seed=1).batch(BATCH_PER_WORKER * workers)

    with strategy.scope():
        model = make_model()
    model.fit(
        train,
        epochs=given.epochs,
        verbose=2,  # Only the chief prints.
        callbacks=[
            tf.keras.callbacks.BackupAndRestore(folder / "backup", save_freq=5),
            failing(given.fail_at, worker),
        ],
    )
    loss, accuracy = model.evaluate(*test, batch_size=64, verbose=0)
    if worker == 0:
        print(f"steps {model.optimizer.iterations.numpy()}")
        print(f"test loss {loss:.6f}, accuracy {accuracy:.3f}")
        model.save(folder / "digits.keras")
        print(f"saved to {folder / 'digits.keras'}")


if __name__ == "__main__":
    main()
