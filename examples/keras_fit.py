"""Fits a Keras model on all devices: callbacks, checkpoints, saving and loading.

usage: python examples/keras_fit.py [--replicas 4] [--epochs 4] [--images 1500]

Only the line that imports TensorFlow differs from a program for TensorFlow.
"""

import argparse
import glob
import os
import tempfile

import common
import numpy as np

import unisono as tf


def scale(image, label):
    """Returns an image with pixels from 0 to 1."""
    image = tf.cast(image, tf.float32)
    return image / 16, label


def make_model():
    """Returns a compiled convolutional network."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.1),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(),
        metrics=["accuracy"],
    )
    return model


def choose_rate(epoch):
    """Returns the learning rate of an epoch."""
    return 1e-2 if epoch < 3 else 1e-3


class ShowRate(tf.keras.callbacks.Callback):
    """Prints the learning rate and the loss of every epoch."""

    def on_epoch_end(self, epoch, logs=None):
        """Prints a line."""
        rate = self.model.optimizer.learning_rate.numpy()
        print(f"epoch {epoch + 1}: rate {rate:.4f}, loss {logs['loss']:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--images", type=int, default=1500)
    given = parser.parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(given.replicas)]
    tf.config.set_logical_device_configuration(cpu, parts)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(len(parts))])
    print(f"replicas: {strategy.num_replicas_in_sync}")

    tf.keras.utils.set_random_seed(0)
    batch = 16 * strategy.num_replicas_in_sync
    images, labels = common.load_digits(given.images)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).map(scale)
    test = data.take(given.images // 5).batch(batch)
    train = data.skip(given.images // 5).cache().shuffle(1000).batch(batch)

    with strategy.scope():
        model = make_model()
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "epoch_{epoch:02d}.weights.h5")
        callbacks = [
            tf.keras.callbacks.TensorBoard(log_dir=os.path.join(folder, "logs")),
            tf.keras.callbacks.ModelCheckpoint(weights, save_weights_only=True),
            tf.keras.callbacks.LearningRateScheduler(choose_rate),
            ShowRate(),
        ]
        model.fit(train, epochs=given.epochs, callbacks=callbacks, verbose=0)
        model.load_weights(max(glob.glob(os.path.join(folder, "*.weights.h5"))))
        loss, accuracy = model.evaluate(test, verbose=0)
        print(f"test loss {loss:.4f}, accuracy {accuracy:.3f}")

        path = os.path.join(folder, "digits.keras")
        model.save(path)
        alone = tf.keras.models.load_model(path)
        with strategy.scope():
            everywhere = tf.keras.models.load_model(path)
        found = [m.evaluate(test, verbose=0)[0] for m in (alone, everywhere)]
    same = np.allclose(found, loss, rtol=1e-4)
    print(f"loaded on one device and on all: {same=}")
    # Guessing one of ten digits at random has a loss of log(10).
    assert same and loss < np.log(10)


if __name__ == "__main__":
    main()
