"""Measures input pipelines: examples per second, and the cost of feeding a step.

usage: python benchmarks/input.py

Each figure compares programs that take turns in one process. Rates are those of whole
epochs without a training step.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rich.console
import rich.table

EXAMPLES, FEATURES, BATCH, REPLICAS = 65_536, 64, 256, 2
ROUNDS = 7
# Many steps, so that neither a buffer that is full at the beginning nor one that is
# empty changes the mean.
FEEDING_ROUNDS, FEEDING_STEPS = 22, 64


def data() -> tuple[np.ndarray, np.ndarray]:
    """Returns features and labels."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(EXAMPLES, FEATURES)).astype("f4")
    return features, rng.integers(0, 10, EXAMPLES).astype("i4")


def standardised(x: Any, y: Any) -> Any:
    """Returns the batch with standardised features."""
    return (x - 0.5) / 2, y


def ours(strategy: Any, arrays: Any, mapped: bool) -> Callable[[], int]:
    """Returns a function that reads an epoch of a distributed dataset.

    The dataset is shuffled and batched, and its batches are on the devices.
    """
    import jax

    import unisono as uni

    dataset = uni.data.Dataset.from_tensor_slices(arrays)
    dataset = dataset.shuffle(EXAMPLES, seed=1).batch(BATCH)
    if mapped:
        dataset = dataset.map(standardised)
    distributed = strategy.experimental_distribute_dataset(dataset)

    def epoch() -> int:
        batches = 0
        for batch in distributed:
            last = batch
            batches += 1
        jax.block_until_ready(last)
        return batches

    return epoch


class _Rows:
    def __init__(self, arrays: Any) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._arrays[0])

    def __getitem__(self, index: int) -> Any:
        return tuple(a[index] for a in self._arrays)


def bare_grain(arrays: Any, mapped: bool) -> Callable[[], int]:
    """Returns a function that reads an epoch in Grain; batches stay on the host."""
    import grain

    made = grain.MapDataset.source(_Rows(arrays)).shuffle(seed=1).batch(BATCH)
    if mapped:
        made = made.map(lambda batch: standardised(*batch))

    def epoch() -> int:
        return sum(1 for _ in made.to_iter_dataset())

    return epoch


def tf_data(arrays: Any, mapped: bool) -> Callable[[], int]:
    """Returns a function that reads an epoch of TensorFlow's distributed dataset."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    if not tf.config.list_logical_devices("GPU"):
        # On the second call of this function the devices are already set.
        with contextlib.suppress(RuntimeError):
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * REPLICAS
            )
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    dataset = dataset.shuffle(EXAMPLES, seed=1).batch(BATCH)
    if mapped:
        dataset = dataset.map(standardised)
    distributed = strategy.experimental_distribute_dataset(dataset)

    def epoch() -> int:
        return sum(1 for _ in distributed)

    return epoch


def rate(epoch: Callable[[], int]) -> float:
    """Returns the examples per second of one epoch."""
    begin = time.perf_counter()
    assert epoch() == EXAMPLES // BATCH
    return EXAMPLES / (time.perf_counter() - begin)


def rates_table(console: rich.console.Console, strategy: Any) -> None:
    """Prints examples per second, against Grain and tf.data."""
    table = rich.table.Table(
        title="Thousands of examples per second, shuffled and batched"
    )
    for head in ("pipeline", "unisono", "Grain", "ratio", "reach", "tf.data", "ratio",
                 "reach"):  # fmt: skip
        table.add_column(head, justify="right", no_wrap=True)
    arrays = data()
    has_tf = importlib.util.find_spec("tensorflow") is not None
    for mapped in (False, True):
        epochs = {
            "ours": ours(strategy, arrays, mapped),
            "grain": bare_grain(arrays, mapped),
        }
        if has_tf:
            epochs["tf"] = tf_data(arrays, mapped)
        found: dict[str, list[float]] = {name: [] for name in epochs}
        for _ in range(ROUNDS):
            for name, epoch in epochs.items():
                found[name].append(rate(epoch))
        medians = {name: statistics.median(r[1:]) for name, r in found.items()}
        row = [
            "with a map" if mapped else "plain",
            f"{medians['ours'] / 1e3:,.1f}",
            f"{medians['grain'] / 1e3:,.1f}",
            f"{medians['ours'] / medians['grain']:.2f}",
            "≥ 0.95",
        ]
        row += (
            [
                f"{medians['tf'] / 1e3:,.1f}",
                f"{medians['ours'] / medians['tf']:.2f}",
                "≥ 1",
            ]
            if has_tf
            else ["none", "", "≥ 1"]
        )
        table.add_row(*row)
    console.print(table)


def hand_fed(mapped: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Returns a hand-written step on one resident batch, and the same with input."""
    import jax
    import steps

    x, y = feeding_data()
    hand = steps.Hand(REPLICAS)
    size = steps.PER_REPLICA * REPLICAS
    step = steps.HandMLP(hand, size)
    rng = np.random.default_rng(1)

    def batches() -> Any:
        while True:
            order = rng.permutation(len(x))
            for start in range(0, len(x), size):
                chosen = order[start : start + size]
                features = x[chosen] * 0.5 if mapped else x[chosen]
                yield jax.device_put((features, y[chosen]), hand.split)

    made = batches()
    there = next(made)
    return lambda: step(there), lambda: step(next(made))


def feeding_data() -> tuple[np.ndarray, np.ndarray]:
    """Returns examples for 64 steps of the classifier."""
    import steps

    rng = np.random.default_rng(0)
    count = 64 * steps.PER_REPLICA * REPLICAS
    x = rng.normal(size=(count, steps.INPUTS)).astype("f4")
    return x, rng.integers(0, 10, count).astype("i4")


def ours_fed(
    strategy: Any, mapped: bool
) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], None]]:
    """Returns the two steps of `hand_fed` under a strategy, with a dataset.

    Returns:
        The step on one resident batch, the step with input, and a function that closes
        the input.
    """
    import steps

    import unisono as uni

    x, y = feeding_data()
    dataset = uni.data.Dataset.from_tensor_slices((x, y))
    dataset = dataset.shuffle(len(x), seed=1).repeat()
    dataset = dataset.batch(steps.PER_REPLICA * REPLICAS)
    if mapped:
        dataset = dataset.map(lambda a, b: (a * 0.5, b))
    step = steps.fed_step(strategy)
    fed = iter(strategy.experimental_distribute_dataset(dataset))
    there = next(fed)
    return lambda: step(*there), lambda: step(*next(fed)), fed.close


def feeding_table(console: rich.console.Console, strategy: Any) -> None:
    """Prints the time of a step with input against the step on a resident batch."""
    table = rich.table.Table(title="One MLP step, fed and on resident data")
    for head in ("input", "resident ms", "fed ms", "ratio", "reach", "by hand"):
        table.add_column(head, justify="right")
    for mapped in (False, True):
        resident, fed, close = ours_fed(strategy, mapped)
        by_hand = dict(zip(("resident", "fed"), hand_fed(mapped), strict=True))
        programs = {"resident": resident, "fed": fed}
        programs.update({f"hand {k}": v for k, v in by_hand.items()})
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(FEEDING_ROUNDS):
            for name, step in programs.items():
                begin = time.perf_counter()
                for _ in range(FEEDING_STEPS):
                    out = step()
                out.block_until_ready()
                times[name].append((time.perf_counter() - begin) / FEEDING_STEPS)
        close()
        kept = {name: found[2:] for name, found in times.items()}

        def ratio(a: str, b: str, kept: Any = kept) -> float:
            pairs = zip(kept[a], kept[b], strict=True)
            return statistics.median(x / y for x, y in pairs)

        table.add_row(
            "arrays, map" if mapped else "arrays",
            f"{statistics.median(kept['resident']) * 1e3:.2f}",
            f"{statistics.median(kept['fed']) * 1e3:.2f}",
            f"{ratio('fed', 'resident'):.3f}",
            "≤ 1.05",
            f"{ratio('hand fed', 'hand resident'):.3f}",
        )
    console.print(table)


def main() -> None:
    """Prints the tables."""
    # Importing TensorFlow imports Keras, and strategies need Keras on the JAX backend.
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import unisono as uni

    uni.config.set_virtual_devices(REPLICAS)
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])
    console = rich.console.Console()
    rates_table(console, strategy)
    feeding_table(console, strategy)


if __name__ == "__main__":
    main()
