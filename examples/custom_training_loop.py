"""Trains with a custom loop: metrics, an uneven last batch, checkpoints.

usage: python examples/custom_training_loop.py [--replicas 4] [--epochs 3]

What changed from tf.distribute:

| TensorFlow                                   | here                                  |
| -------------------------------------------- | ------------------------------------- |
| `import tensorflow as tf`                    | `import unisono as uni`               |
| layers                                       | `jax.numpy` on `uni.Variable`         |
| `with tf.GradientTape() as tape: loss = …`   | the same under `uni`                  |
| `tf.keras.optimizers.Adam()`                 | any Optax transformation              |
| `tf.nn.compute_average_loss`                 | `uni.nn.compute_average_loss`         |
| `strategy.run`, `strategy.reduce`, metrics   | the same                              |
| `tf.train.Checkpoint`, `CheckpointManager`   | the same under `uni.train`            |
| a restart reads the data from the beginning  | a checkpoint can store an iterator    |
| progress is printed by hand                  | `uni.train.Progress`                  |
"""

import argparse
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from digits import load_digits

import unisono as uni

GLOBAL_BATCH = 64


class Classifier(uni.Module):
    """Scores images with a perceptron that has one hidden layer."""

    def __init__(self):
        super().__init__()
        first, second = jax.random.split(jax.random.key(0))
        self.w1 = uni.Variable(jax.random.normal(first, (64, 32)) / 8, name="w1")
        self.b1 = uni.Variable(jnp.zeros(32), name="b1")
        self.w2 = uni.Variable(jax.random.normal(second, (32, 10)) / 6, name="w2")
        self.b2 = uni.Variable(jnp.zeros(10), name="b2")

    def __call__(self, images):
        """Returns one score per class."""
        return jax.nn.relu(images @ self.w1 + self.b1) @ self.w2 + self.b2


class Training:
    """Trains and tests a model under a strategy.

    Args:
        strategy: the strategy.
        data: the images and labels to train and to test on.
        directory: the directory for checkpoints.
    """

    def __init__(self, strategy, data, directory):
        self.strategy = strategy
        with strategy.scope():
            self.model = Classifier()
            self.optimizer = uni.optimizers.Optimizer(
                optax.adam(1e-2), self.model.trainable_variables
            )
            self.train_accuracy = uni.metrics.SparseCategoricalAccuracy("train")
            self.test_accuracy = uni.metrics.SparseCategoricalAccuracy("test")
            self.test_loss = uni.metrics.Mean("test_loss")
        dataset = uni.data.Dataset.from_tensor_slices(data.train)
        # The last batch of an epoch is smaller, and replicas may get parts of different
        # sizes. No example is dropped.
        dataset = dataset.shuffle(len(data.train[0]), seed=0).batch(GLOBAL_BATCH)
        self.batches = strategy.experimental_distribute_dataset(dataset)
        dataset = uni.data.Dataset.from_tensor_slices(data.test).batch(GLOBAL_BATCH)
        self.test_batches = strategy.experimental_distribute_dataset(dataset)
        self.checkpoint = uni.train.Checkpoint(
            model=self.model, optimizer=self.optimizer, epoch=0
        )
        self.manager = uni.train.CheckpointManager(self.checkpoint, directory, 2)

    @uni.function
    def train_step(self, batch):
        """Updates the model with a global batch and returns its loss."""

        def replica_step(batch):
            images, labels = batch
            with uni.GradientTape() as tape:
                scores = self.model(images)
                losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
                # Divides by the size of the global batch, because the gradients and the
                # losses of the replicas are summed.
                loss = uni.nn.compute_average_loss(
                    losses, global_batch_size=GLOBAL_BATCH
                )
            variables = self.model.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables))
            self.train_accuracy.update_state(labels, scores)
            return loss

        losses = self.strategy.run(replica_step, args=(batch,))
        return self.strategy.reduce("SUM", losses, axis=None)

    @uni.function
    def test_step(self, batch):
        """Updates the test metrics with a global batch."""

        def replica_step(batch):
            images, labels = batch
            scores = self.model(images)
            losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
            self.test_loss.update_state(losses)
            self.test_accuracy.update_state(labels, scores)

        self.strategy.run(replica_step, args=(batch,))

    def train_epoch(self):
        """Trains for one epoch and returns the sum of the losses of its steps."""
        self.train_accuracy.reset_state()
        number = self.checkpoint.epoch + 1
        progress = uni.train.Progress(self.batches, description=f"epoch {number}")
        losses = []
        for batch in progress:
            losses.append(self.train_step(batch))
            progress.show(loss=losses[-1])
        self.checkpoint.epoch = number
        self.manager.save()
        return float(np.sum(losses))

    def test(self):
        """Returns the loss and the accuracy on images that were not trained on."""
        self.test_loss.reset_state()
        self.test_accuracy.reset_state()
        for batch in self.test_batches:
            self.test_step(batch)
        return float(self.test_loss.result()), float(self.test_accuracy.result())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=500)
    given = parser.parse_args()
    uni.config.set_virtual_devices(given.replicas)
    names = [f"CPU:{i}" for i in range(given.replicas)]
    data = load_digits()
    data = type(data)(tuple(x[: given.images] for x in data.train), data.test)
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        one = Training(uni.distribute.OneDeviceStrategy("CPU:0"), data, folder / "one")
        many = Training(uni.distribute.MirroredStrategy(names), data, folder / "many")
        for epoch in range(given.epochs):
            losses = [training.train_epoch() for training in (one, many)]
            print(f"epoch {epoch + 1}: loss {losses[0]:.6f} and {losses[1]:.6f}")
            assert np.isclose(*losses, rtol=1e-3), losses
        wanted = many.test()
        print(f"new images: loss {wanted[0]:.4f}, accuracy {wanted[1]:.4f}")
        # Restores on one device a checkpoint that was saved on several replicas.
        again = Training(
            uni.distribute.OneDeviceStrategy("CPU:0"), data, folder / "many"
        )
        again.manager.restore_or_initialize()
        found = again.test()
        print(f"restored on one device after epoch {again.checkpoint.epoch}: {found}")
        print(f"same={np.allclose(found, wanted, rtol=1e-5)}")


if __name__ == "__main__":
    main()
