"""Trains a Keras model with a custom loop: a tape, metrics, checkpoints.

usage: python examples/keras_custom_loop.py [--replicas 4] [--epochs 2] [--images 1500]

Only the line that imports TensorFlow differs from a program for TensorFlow.
"""

import argparse
import os
import tempfile

import common
import numpy as np

import unisono as tf


def make_model():
    """Returns a network with a penalty on large weights."""
    penalty = tf.keras.regularizers.L2(1e-4)
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(32, activation="relu", kernel_regularizer=penalty),
            tf.keras.layers.Dense(10),
        ]
    )


class Training:
    """A model with its optimizer and metrics, and steps on all replicas."""

    def __init__(self, strategy, batch):
        self.strategy, self.batch = strategy, batch
        with strategy.scope():
            # Not reduced, because the mean is taken over the examples of all replicas.
            self.losses = tf.keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction=tf.keras.losses.Reduction.NONE
            )
            self.test_loss = tf.keras.metrics.Mean(name="test_loss")
            self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
            self.model = make_model()
            self.optimizer = tf.keras.optimizers.Adam(learning_rate=0.01)
            self.optimizer.build(self.model.trainable_variables)
            self.checkpoint = tf.train.Checkpoint(
                optimizer=self.optimizer, model=self.model
            )

    def compute_loss(self, labels, scores):
        """Returns a replica's part of the mean loss of the global batch."""
        loss = tf.nn.compute_average_loss(
            self.losses(labels, scores), global_batch_size=self.batch
        )
        penalties = self.model.losses
        return loss + tf.nn.scale_regularization_loss(tf.add_n(penalties))

    def replica_step(self, inputs):
        """Trains one replica on its part of a batch."""
        images, labels = inputs
        with tf.GradientTape() as tape:
            scores = self.model(images, training=True)
            loss = self.compute_loss(labels, scores)
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables))
        self.accuracy.update_state(labels, scores)
        return loss

    @tf.function
    def train_step(self, inputs):
        """Trains on a global batch and returns its loss."""
        losses = self.strategy.run(self.replica_step, args=(inputs,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    @tf.function
    def train_epoch(self, dataset):
        """Trains on all batches of a dataset in one compiled function."""
        total, count = 0.0, 0
        for inputs in dataset:
            losses = self.strategy.run(self.replica_step, args=(inputs,))
            total += self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
            count += 1
        return total / tf.cast(count, tf.float32)

    @tf.function
    def test_step(self, inputs):
        """Adds a global batch to the metrics of the test."""

        def replica_step(inputs):
            images, labels = inputs
            scores = self.model(images, training=False)
            self.test_loss.update_state(self.losses(labels, scores))
            self.accuracy.update_state(labels, scores)

        self.strategy.run(replica_step, args=(inputs,))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=1500)
    given = parser.parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(given.replicas)]
    tf.config.set_logical_device_configuration(cpu, parts)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(len(parts))])

    tf.keras.utils.set_random_seed(0)
    images, labels = common.load_digits(given.images)
    images, batch = images / np.float32(16), 16 * strategy.num_replicas_in_sync
    split = given.images // 5
    train = tf.data.Dataset.from_tensor_slices((images[split:], labels[split:]))
    train = train.shuffle(given.images).batch(batch, drop_remainder=True)
    test = tf.data.Dataset.from_tensor_slices((images[:split], labels[:split]))
    test = test.batch(batch)
    batches = strategy.experimental_distribute_dataset(train)
    test_batches = strategy.experimental_distribute_dataset(test)
    training = Training(strategy, batch)

    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(given.epochs):
            losses = [training.train_step(inputs) for inputs in batches]
            train_accuracy = training.accuracy.result()
            training.accuracy.reset_state()
            for inputs in test_batches:
                training.test_step(inputs)
            print(
                f"epoch {epoch + 1}: loss {tf.reduce_mean(losses):.4f}, accuracy "
                f"{train_accuracy:.3f}, test loss {training.test_loss.result():.4f}, "
                f"accuracy {training.accuracy.result():.3f}"
            )
            training.checkpoint.save(os.path.join(folder, "digits"))
            training.test_loss.reset_state()
            training.accuracy.reset_state()

        # Evaluates the model on one device, without a strategy.
        model, optimizer = make_model(), tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")

        @tf.function
        def evaluate(images, labels):
            accuracy.update_state(labels, model(images, training=False))

        checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)
        checkpoint.restore(tf.train.latest_checkpoint(folder))
        for images, labels in test:
            evaluate(images, labels)
        print(f"restored on one device: accuracy {accuracy.result():.3f}")

    # Two other ways to go through the batches: an iterator, and a compiled loop.
    iterator, total = iter(batches), 0.0
    for _ in range(3):
        total += training.train_step(next(iterator))
    print(f"three steps with an iterator: loss {total / 3:.4f}")
    print(f"an epoch in one function: loss {training.train_epoch(batches):.4f}")


if __name__ == "__main__":
    main()
