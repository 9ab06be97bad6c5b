"""Saves a model under one strategy; loads it under others and without a strategy.

usage: python examples/save_and_load.py [--replicas 4] [--images 500]

Only the line that imports TensorFlow differs from a program for TensorFlow.
"""

import argparse
import os
import tempfile

import common
import numpy as np

import unisono as tf

BATCH = 64


class Scorer(tf.Module):
    """A module of one's own around a model; it also says how sure it is."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1], tf.float32)])
    def __call__(self, images):
        """Returns the probability of the best class of each image."""
        scores = self.model(images, training=False)
        return tf.reduce_max(tf.nn.softmax(scores), axis=-1)


def make_model():
    """Returns a compiled linear classifier."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(0.01),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    return model


def predict(strategy, function, dataset):
    """Returns the scores of all images, computed on all replicas."""
    found = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        result = strategy.run(function, args=(batch,))
        scores = tf.nest.flatten(result)[0]  # TensorFlow returns a dict with one value.
        found += strategy.experimental_local_results(scores)
    return np.concatenate(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--images", type=int, default=500)
    given = parser.parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(given.replicas)]
    tf.config.set_logical_device_configuration(cpu, parts)
    mirrored = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(len(parts))])
    one = tf.distribute.OneDeviceStrategy("/cpu:0")

    tf.keras.utils.set_random_seed(0)
    images, labels = common.load_digits(given.images)
    images = images / np.float32(16)
    train = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
    only_images = train.map(lambda image, label: image)
    with mirrored.scope():
        model = make_model()
        model.fit(train, epochs=2, verbose=0)
    wanted = model.predict(images, verbose=0)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        # Keras' own format: you can continue to train the model.
        path = os.path.join(folder, "model.keras")
        model.save(path)
        restored = tf.keras.models.load_model(path)
        found["Keras, without a strategy"] = restored.predict(images, verbose=0)
        with one.scope():
            restored = tf.keras.models.load_model(path)
            found["Keras, one device"] = restored.predict(images, verbose=0)
            restored.fit(train, epochs=1, verbose=0)

        # A saved model: functions and weights, without Python code.
        path = os.path.join(folder, "saved_model")
        tf.saved_model.save(model, path)
        serve = tf.saved_model.load(path).signatures["serving_default"]
        found["saved model, without a strategy"] = predict(
            tf.distribute.get_strategy(), serve, only_images
        )
        options = tf.saved_model.LoadOptions(experimental_io_device="/job:localhost")
        for name, strategy in (("one device", one), ("all replicas", mirrored)):
            with strategy.scope():
                serve = tf.saved_model.load(path, options=options).signatures[
                    "serving_default"
                ]
                found[f"saved model, {name}"] = predict(strategy, serve, only_images)

        # A module around the model, and a checkpoint.
        path = os.path.join(folder, "scorer")
        tf.saved_model.save(Scorer(model), path)
        sure = tf.saved_model.load(path)(tf.constant(images))
        print(f"sure of the first digit: {float(sure[0]):.3f}")
        saved = tf.train.Checkpoint(model=model).write(os.path.join(folder, "weights"))
        fresh = make_model()
        tf.train.Checkpoint(model=fresh).read(saved).expect_partial()
        found["from a checkpoint"] = fresh.predict(images, verbose=0)
    for name, scores in found.items():
        same = np.allclose(scores, wanted, rtol=1e-4, atol=1e-5)
        print(f"{name}: {same=}")
        assert same, name


if __name__ == "__main__":
    main()
