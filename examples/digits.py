"""Trains a digit classifier on one replica and on eight; the losses are the same.

Run it with `make demo`. `python examples/digits.py --help` lists its options.
"""

import argparse
import dataclasses
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import unisono as uni

DATA = pathlib.Path(__file__).parent / "data" / "digits.npz"

GLOBAL_BATCH = 64
TRAINING_IMAGES = 1500  # 23 batches of 64, and a last one of 28.
HIDDEN = 64


@dataclasses.dataclass(frozen=True)
class Digits:
    """Holds the images and labels to train on and to test on."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass
class History:
    """Holds the results of one training run.

    Attributes:
        replicas: the number of replicas.
        losses: the mean training loss of each epoch.
        accuracies: the training accuracy of each epoch.
        seconds: the time of each epoch.
        test_accuracy: the accuracy on images that were not trained on.
        placement: the table of where each variable is.
    """

    replicas: int
    losses: list[float]
    accuracies: list[float]
    seconds: list[float]
    test_accuracy: float
    placement: object

    @property
    def images_per_second(self):
        """Throughput without the first epoch, in which the step is compiled."""
        return TRAINING_IMAGES * (len(self.seconds) - 1) / sum(self.seconds[1:])


def load_digits():
    """Returns shuffled images as rows of 64 numbers from 0 to 1, and their labels."""
    with np.load(DATA, allow_pickle=False) as arrays:
        images = arrays["images"].reshape(-1, 64).astype(np.float32) / 16
        labels = arrays["labels"].astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], labels[order]
    cut = TRAINING_IMAGES
    return Digits((images[:cut], labels[:cut]), (images[cut:], labels[cut:]))


class Classifier:
    """Holds a perceptron with one hidden layer, its optimizer and its metric."""

    def __init__(self):
        first, second = jax.random.split(jax.random.key(0))
        self.w1 = uni.Variable(
            jax.random.normal(first, (64, HIDDEN)) * np.sqrt(2 / 64), name="hidden/w"
        )
        self.b1 = uni.Variable(jnp.zeros(HIDDEN), name="hidden/b")
        self.w2 = uni.Variable(
            jax.random.normal(second, (HIDDEN, 10)) * np.sqrt(1 / HIDDEN),
            name="output/w",
        )
        self.b2 = uni.Variable(jnp.zeros(10), name="output/b")
        self.weights = [self.w1, self.b1, self.w2, self.b2]
        self.optimizer = uni.optimizers.Optimizer(optax.adam(3e-3), self.weights)
        self.accuracy = uni.metrics.Mean(name="accuracy")

    @property
    def variables(self):
        """All variables: weights, slots of the optimizer, counters of the metric."""
        return [*self.weights, *self.optimizer.variables, *self.accuracy.variables]

    def __call__(self, images):
        """Returns one score per class."""
        hidden = jax.nn.relu(images @ self.w1 + self.b1)
        return hidden @ self.w2 + self.b2


def make_train_step(strategy, model):
    """Returns a compiled step that takes a global batch and returns its loss."""

    def replica_fn(images, labels):
        def loss_fn():
            scores = model(images)
            per_example = optax.softmax_cross_entropy_with_integer_labels(
                scores, labels
            )
            model.accuracy.update_state(scores.argmax(-1) == labels)
            return uni.nn.compute_average_loss(
                per_example, global_batch_size=GLOBAL_BATCH
            )

        loss, gradients = uni.value_and_grad(loss_fn, model.weights)()
        model.optimizer.apply_gradients(zip(gradients, model.weights))
        return loss

    @uni.function
    def train_step(images, labels):
        losses = strategy.run(replica_fn, args=(images, labels))
        return strategy.reduce("SUM", losses, axis=None)

    return train_step


def make_batches(strategy, digits):
    """Returns the global batches, split over the replicas, with the small last one."""
    dataset = uni.data.Dataset.from_tensor_slices(digits.train)
    dataset = dataset.shuffle(TRAINING_IMAGES, seed=0).batch(GLOBAL_BATCH)
    return strategy.experimental_distribute_dataset(dataset)


def train(strategy, digits, epochs, advance):
    """Trains a new model, calls `advance(epoch, loss)` after each epoch, and reports.

    Returns:
        The `History` of the run.
    """
    with strategy.scope():
        model = Classifier()
    train_step = make_train_step(strategy, model)
    batches = make_batches(strategy, digits)
    losses, accuracies, seconds = [], [], []
    for epoch in range(epochs):
        model.accuracy.reset_state()
        start = time.perf_counter()
        # Reading a loss waits for its step, so all steps are started first.
        total = sum(float(loss) for loss in [train_step(*batch) for batch in batches])
        seconds.append(time.perf_counter() - start)
        # Every step divides by the size of a full batch, even if its batch is smaller.
        # So the sum of the losses gives the mean over all images.
        losses.append(total * GLOBAL_BATCH / TRAINING_IMAGES)
        accuracies.append(float(model.accuracy.result()))
        advance(epoch, losses[-1])
    images, labels = digits.test
    return History(
        replicas=strategy.num_replicas_in_sync,
        losses=losses,
        accuracies=accuracies,
        seconds=seconds,
        test_accuracy=float(np.mean(np.argmax(model(images), axis=-1) == labels)),
        placement=strategy.describe(model.variables),
    )


def train_with_progress(strategy, digits, epochs, console):
    """Trains with a progress bar and returns the `History`."""
    replicas = strategy.num_replicas_in_sync
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs  loss {task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        name = f"{replicas} replica{'s' if replicas > 1 else ' '}"
        task = progress.add_task(name, total=epochs, loss="  …   ")

        def advance(epoch, loss):
            progress.update(task, completed=epoch + 1, loss=f"{loss:.4f}")

        return train(strategy, digits, epochs, advance)


def loss_table(one, many):
    """Returns a table of the losses of two runs and their differences."""
    table = Table(title="Training loss")
    headers = ("epoch", "1 replica", f"{many.replicas} replicas", "difference")
    for header in headers:
        table.add_column(header, justify="right")
    for epoch, (a, b) in enumerate(zip(one.losses, many.losses), start=1):
        table.add_row(str(epoch), f"{a:.6f}", f"{b:.6f}", f"{abs(a - b):.1e}")
    largest = max(abs(a - b) for a, b in zip(one.losses, many.losses))
    table.add_section()
    table.add_row("largest", "", "", f"{largest:.1e}", style="bold")
    return table


def loss_chart(one, many, height=10):
    """Returns the loss curves of two runs as text, on a logarithmic scale."""
    values = np.log([one.losses, many.losses])
    low, high = values.min(), values.max()
    # The row of each loss, counted from the bottom.
    rows = np.rint((values - low) / max(high - low, 1e-9) * (height - 1)).astype(int)
    lines = []
    for row in reversed(range(height)):
        loss = np.exp(low + (high - low) * row / (height - 1))
        marks = (" +×●"[a + 2 * b] for a, b in zip(rows[0] == row, rows[1] == row))
        lines.append(f"{loss:8.3f} │ " + "   ".join(marks).rstrip())
    lines.append(" " * 9 + "└" + "─" * (4 * len(one.losses)) + " epochs")
    names = f"+ 1 replica   × {many.replicas} replicas   ● both"
    return "\n".join([f"{'loss':>8}", *lines, f"{names:>{9 + len(names) + 2}}"])


def run_table(*histories):
    """Returns a table of the throughput and the accuracy of each run."""
    table = Table(title="Runs")
    for header in ("replicas", "images/s", "first epoch", "accuracy", "on new images"):
        table.add_column(header, justify="right")
    for history in histories:
        table.add_row(
            str(history.replicas),
            f"{history.images_per_second:,.0f}",
            f"{history.seconds[0]:.2f} s",
            f"{history.accuracies[-1]:.1%}",
            f"{history.test_accuracy:.1%}",
        )
    return table


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=8, help="virtual CPU devices")
    parser.add_argument("--epochs", type=int, default=12, help="at least 2")
    arguments = parser.parse_args()
    if arguments.replicas < 2 or arguments.epochs < 2:
        parser.error("--replicas and --epochs are 2 or more, so that runs compare.")
    return arguments


def main():
    arguments = parse_arguments()
    uni.config.set_virtual_devices(arguments.replicas)
    devices = [f"CPU:{i}" for i in range(arguments.replicas)]
    console, digits = Console(), load_digits()
    console.print(
        f"{TRAINING_IMAGES} handwritten digits in batches of {GLOBAL_BATCH},\n"
        f"the same program on 1 device and on {arguments.replicas} virtual ones.\n"
    )
    one = train_with_progress(
        uni.distribute.OneDeviceStrategy("CPU:0"), digits, arguments.epochs, console
    )
    many = train_with_progress(
        uni.distribute.MirroredStrategy(devices), digits, arguments.epochs, console
    )
    console.print()
    console.print(loss_chart(one, many), highlight=False)
    console.print()
    console.print(loss_table(one, many))
    console.print(run_table(one, many))
    console.print(
        "Virtual devices share this machine's processor: they are there to develop\n"
        "and to test on, not for speed.\n",
        style="dim",
    )
    console.print(many.placement.table)


if __name__ == "__main__":
    main()
