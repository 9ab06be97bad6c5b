"""Saves a model under one strategy; loads it under others and without a strategy.

usage: python examples/save_and_load.py [--replicas 4] [--images 500]

What changed from tf.distribute:

| TensorFlow                                       | here                              |
| ------------------------------------------------ | --------------------------------- |
| `tf.Module`, `@tf.function(input_signature=…)`   | the same under `uni`              |
| `tf.saved_model.save`, `tf.saved_model.load`     | the same; StableHLO, not a graph  |
| `loaded.signatures["serving_default"]`           | the same; takes positions, too    |
| loading inside a scope distributes the variables | the same                          |
| a loaded function inside `strategy.run`          | the same                          |
| `tf.train.Checkpoint`                            | the same under `uni.train`        |
| a SavedModel can run any operation of its graph  | only XLA programs and arrays      |
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
    """Scores images linearly; its input signature lets it be exported."""

    def __init__(self):
        super().__init__()
        self.w = uni.Variable(jnp.zeros((64, 10)), name="w")
        self.b = uni.Variable(jnp.zeros(10), name="b")

    @uni.function(input_signature=[uni.TensorSpec([None, 64], "float32")])
    def __call__(self, images):
        """Returns one score per class."""
        return images @ self.w + self.b


def train(strategy, model, images, labels):
    """Trains the model for one epoch."""
    with strategy.scope():
        optimizer = uni.optimizers.Optimizer(optax.adam(0.03), model.variables)

    @uni.function
    def step(batch):
        def replica_step(batch):
            images, labels = batch

            def loss_fn():
                losses = optax.softmax_cross_entropy_with_integer_labels(
                    model(images), labels
                )
                return uni.nn.compute_average_loss(
                    losses, global_batch_size=GLOBAL_BATCH
                )

            gradients = uni.grad(loss_fn, model.variables)()
            optimizer.apply_gradients(zip(gradients, model.variables))

        strategy.run(replica_step, args=(batch,))

    dataset = uni.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.batch(GLOBAL_BATCH)
    for batch in strategy.experimental_distribute_dataset(dataset):
        step(batch)


def predict(strategy, model, images):
    """Returns the scores of all images, computed on all replicas."""
    dataset = uni.data.Dataset.from_tensor_slices(images).batch(GLOBAL_BATCH)
    batches = strategy.experimental_distribute_dataset(dataset)
    # `run` takes a loaded function as it takes any other.
    found = [
        strategy.gather(strategy.run(model, args=(batch,)), axis=0) for batch in batches
    ]
    return np.concatenate(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--images", type=int, default=500)
    given = parser.parse_args()
    uni.config.set_virtual_devices(given.replicas)
    names = [f"CPU:{i}" for i in range(given.replicas)]
    mirrored = uni.distribute.MirroredStrategy(names)
    one = uni.distribute.OneDeviceStrategy("CPU:0")
    digits = load_digits()
    images, labels = (x[: given.images] for x in digits.train)
    with mirrored.scope():
        model = Classifier()
    train(mirrored, model, images, labels)
    wanted = np.asarray(model(digits.test[0]))
    accuracy = np.mean(wanted.argmax(-1) == digits.test[1])
    print(f"trained on {given.replicas} replicas: accuracy {accuracy:.3f}")
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "model"
        uni.saved_model.save(model, path, signatures=model.__call__)
        print("saved:", sorted(p.name for p in path.iterdir()))

        plain = uni.saved_model.load(path)
        served = plain.signatures["serving_default"](digits.test[0])
        found = {"without a strategy": jax.tree.leaves(served)[0]}
        for name, strategy in (("one device", one), ("all replicas", mirrored)):
            with strategy.scope():
                loaded = uni.saved_model.load(path)
            found[name] = predict(strategy, loaded, digits.test[0])

        checkpoint = uni.train.Checkpoint(model=model)
        saved = checkpoint.write(pathlib.Path(directory) / "checkpoint")
        with one.scope():
            fresh = Classifier()
        uni.train.Checkpoint(model=fresh).read(saved).assert_consumed()
        found["from a checkpoint"] = fresh(digits.test[0])
    for name, scores in found.items():
        same = np.allclose(scores, wanted, rtol=1e-4, atol=1e-5)
        print(f"{name}: same={same}")
        assert same, name


if __name__ == "__main__":
    main()
