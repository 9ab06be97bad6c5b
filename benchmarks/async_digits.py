"""Compares the accuracy of asynchronous and synchronous training on the digits.

usage: python benchmarks/async_digits.py [--seeds 5] [--epochs 40] [--carrier threads]

The same network, optimizer, batches per epoch and learning rate train on two workers
with two parameter servers, and on two replicas of a `MirroredStrategy`. The means over
the seeds must differ by at most one point; else the program fails.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.console
import rich.table

import unisono as uni

DATA = pathlib.Path(__file__).parent.parent / "examples" / "data" / "digits.npz"
BATCH, TRAINING, HIDDEN, WORKERS, SERVERS = 64, 1500, 64, 2, 2
POINTS = 1.0


def load() -> tuple[np.ndarray, np.ndarray]:
    """Returns the images, shuffled as those of ``examples/digits.py``, and labels."""
    with np.load(DATA, allow_pickle=False) as arrays:
        images = arrays["images"].reshape(-1, 64).astype(np.float32) / 16
        labels = arrays["labels"].astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], labels[order]


def make_data(seed: int) -> uni.data.Dataset[Any]:
    """Returns the training data without end, each epoch in another order."""
    images, labels = load()
    given = images[:TRAINING], labels[:TRAINING]
    data = uni.data.Dataset.from_tensor_slices(given).shuffle(TRAINING, seed=seed)
    return data.batch(BATCH, drop_remainder=True).repeat()


class Network:
    """A perceptron with one hidden layer, and its optimizer.

    Args:
        seed: of its first weights.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)

        def draw(rows: int, columns: int) -> uni.Variable:
            value = rng.normal(size=(rows, columns)) * np.sqrt(2 / rows)
            return uni.Variable(value.astype(np.float32))

        self.weights = [
            draw(64, HIDDEN),
            uni.Variable(jnp.zeros(HIDDEN)),
            draw(HIDDEN, 10),
            uni.Variable(jnp.zeros(10)),
        ]
        self._optimizer = uni.optimizers.Optimizer(optax.adam(3e-3), self.weights)

    def train(self, images: Any, labels: Any) -> None:
        """Takes one step with a batch, or with a replica's part of it."""

        def loss_fn() -> Any:
            scores = score(images, *self.weights)
            per_example = optax.softmax_cross_entropy_with_integer_labels(
                scores, labels
            )
            return uni.nn.compute_average_loss(per_example, global_batch_size=BATCH)

        _, gradients = uni.value_and_grad(loss_fn, self.weights)()
        self._optimizer.apply_gradients(zip(gradients, self.weights, strict=True))

    def test(self) -> float:
        """Returns the accuracy on images that were not trained on, in per cent."""
        images, labels = load()
        found = score(images[TRAINING:], *(v.numpy() for v in self.weights))
        return 100 * float(np.mean(np.argmax(found, -1) == labels[TRAINING:]))


def score(images: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    """Returns one score for each class."""
    return jax.nn.relu(images @ w1 + b1) @ w2 + b2


def train_synchronously(seed: int, steps: int) -> float:
    """Returns the accuracy after steps of two replicas."""
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        network = Network(seed)
    iterator = iter(strategy.experimental_distribute_dataset(make_data(seed)))
    step = uni.function(lambda i: strategy.run(network.train, args=next(i)))
    for _ in range(steps):
        step(iterator)
    return network.test()


def train_asynchronously(seed: int, steps: int, carrier: str) -> float:
    """Returns the accuracy after steps of two workers that do not wait."""
    cluster = {
        "worker": [f"w{i}:1" for i in range(WORKERS)],
        "ps": [f"p{i}:1" for i in range(SERVERS)],
    }
    strategy = uni.distribute.ParameterServerStrategy(
        uni.distribute.cluster_resolver.SimpleClusterResolver(
            uni.train.ClusterSpec(cluster)
        ),
        carrier=carrier,
    )
    try:
        coordinator = uni.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            network = Network(seed)

        def dataset_fn() -> uni.data.Dataset[Any]:
            index = uni.distribute.coordinator.experimental_get_current_worker_index()
            return make_data(seed + 1000 * int(index))

        iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
        step = uni.function(lambda i: strategy.run(network.train, args=next(i)))
        for _ in range(steps):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        return network.test()
    finally:
        strategy.shutdown()


def main() -> None:
    """Trains with all seeds, and prints the accuracies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--carrier", choices=["threads", "ray"], default="threads")
    options = parser.parse_args()
    steps = options.epochs * (TRAINING // BATCH)
    table = rich.table.Table(title=f"accuracy in per cent, {steps} steps of {BATCH}")
    for head in ("seed", "synchronous", "asynchronous"):
        table.add_column(head, justify="right")
    found = []
    for seed in range(options.seeds):
        pair = (
            train_synchronously(seed, steps),
            train_asynchronously(seed, steps, options.carrier),
        )
        found.append(pair)
        table.add_row(str(seed), *(f"{x:.2f}" for x in pair))
    first, second = np.mean(found, axis=0)
    table.add_section()
    table.add_row("mean", f"{first:.2f}", f"{second:.2f}")
    rich.console.Console().print(table)
    if abs(first - second) > POINTS:
        sys.exit(f"The means differ by more than {POINTS} point.")


if __name__ == "__main__":
    main()
