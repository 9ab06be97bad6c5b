"""Measures input pipelines: examples per second, and the cost of feeding a step.

usage: python benchmarks/input.py [--tensorflow PYTHON] [--pytorch PYTHON] [ROW …]

The rates of whole epochs of the pipelines in `pipelines.py`, beside tf.data and
PyTorch's `DataLoader` where an interpreter that has them is named. Each runs in a
process of its own; they take turns, and the first epoch counts by itself. Then rates
beside Grain, and the cost of feeding a training step; these take turns in one process.
Naming rows leaves out all else.
"""

from __future__ import annotations

import argparse
import compileall
import dataclasses
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pipelines
import rich.console
import rich.table

HERE = pathlib.Path(__file__).parent
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


def rate(epoch: Callable[[], int]) -> float:
    """Returns the examples per second of one epoch."""
    begin = time.perf_counter()
    assert epoch() == EXAMPLES // BATCH
    return EXAMPLES / (time.perf_counter() - begin)


@dataclasses.dataclass
class Reader:
    """A process that reads epochs of one pipeline in one library."""

    library: str
    process: subprocess.Popen[str]
    found: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def read(self) -> None:
        """Reads an epoch."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.found.append(json.loads(self.process.stdout.readline()))

    def warm_rates(self) -> list[float]:
        """Returns the rates of all epochs but the first, the lowest first."""
        return sorted(told["rate"] for told in self.found[1:])


def start_reader(library: str, python: str, row: str, folder: str) -> Reader | None:
    """Starts a reader; returns None if the library has nothing like the row."""
    command = [python, str(HERE / "pipelines.py"), library, row, folder]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{library} has failed in the row {row}; see above.")
    return Reader(library, process) if json.loads(line) else None


def measure(row: str, pythons: dict[str, str], folder: str) -> list[Reader]:
    """Returns the readers of a row after their epochs, which took turns."""
    started = [start_reader(name, path, row, folder) for name, path in pythons.items()]
    readers = [reader for reader in started if reader is not None]
    for _ in range(ROUNDS + 1):
        for reader in readers:
            reader.read()
    for reader in readers:
        assert reader.process.stdin is not None
        reader.process.stdin.close()
        reader.process.wait()
    return readers


def pipelines_table(
    console: rich.console.Console, pythons: dict[str, str], rows: list[str]
) -> None:
    """Prints examples per second of each pipeline in each library."""
    table = rich.table.Table(title="Examples per second: median (lowest-highest)")
    heads = ("pipeline", "library", "first epoch", "later epochs", "ours ÷ it", "MB",
             "numbers")  # fmt: skip
    for head in heads:
        table.add_column(head, justify="left" if head == "pipeline" else "right")
    # The modules of an installed package are compiled; those of a checkout may not be,
    # which the first epoch would pay for.
    package = importlib.util.find_spec("unisono")
    assert package is not None and package.origin is not None
    compileall.compile_dir(pathlib.Path(package.origin).parent, quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        pipelines.write_files(pathlib.Path(folder))
        for row in rows:
            readers = measure(row, pythons, folder)
            ours = readers[0]
            for reader in readers:
                rates = reader.warm_rates()
                median = statistics.median(rates)
                first = reader.found[0]
                table.add_row(
                    pipelines.ROWS[row][0] if reader is ours else "",
                    reader.library,
                    f"{first['rate']:,.0f}",
                    f"{median:,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f})",
                    f"{statistics.median(ours.warm_rates()) / median:.2f}",
                    f"{reader.found[-1]['memory']:,}",
                    # Batches that are shuffled, or have other types, are others.
                    "equal" if first["digest"] == ours.found[0]["digest"] else "other",
                )
            table.add_section()
    console.print(table)


def rates_table(console: rich.console.Console, strategy: Any) -> None:
    """Prints examples per second, against Grain."""
    table = rich.table.Table(
        title="Thousands of examples per second, shuffled and batched"
    )
    for head in ("pipeline", "unisono", "Grain", "ratio", "reach"):
        table.add_column(head, justify="right", no_wrap=True)
    arrays = data()
    for mapped in (False, True):
        epochs = {
            "ours": ours(strategy, arrays, mapped),
            "grain": bare_grain(arrays, mapped),
        }
        found: dict[str, list[float]] = {name: [] for name in epochs}
        for _ in range(ROUNDS):
            for name, epoch in epochs.items():
                found[name].append(rate(epoch))
        medians = {name: statistics.median(r[1:]) for name, r in found.items()}
        table.add_row(
            "with a map" if mapped else "plain",
            f"{medians['ours'] / 1e3:,.1f}",
            f"{medians['grain'] / 1e3:,.1f}",
            f"{medians['ours'] / medians['grain']:.2f}",
            "≥ 0.95",
        )
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", choices=[*pipelines.ROWS, []])
    parser.add_argument("--tensorflow", metavar="PYTHON", help="a Python that has it")
    parser.add_argument("--pytorch", metavar="PYTHON", help="a Python that has it")
    given = parser.parse_args()
    pythons = {"unisono": sys.executable}
    pythons |= {"tensorflow": given.tensorflow} if given.tensorflow else {}
    pythons |= {"torch": given.pytorch} if given.pytorch else {}
    console = rich.console.Console(width=120)
    pipelines_table(console, pythons, given.rows or [*pipelines.ROWS])
    if given.rows:
        return
    import unisono as uni

    uni.config.set_virtual_devices(REPLICAS)
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])
    rates_table(console, strategy)
    feeding_table(console, strategy)


if __name__ == "__main__":
    main()
