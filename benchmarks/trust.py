"""Measures what it costs that nothing wrong is read.

usage: python benchmarks/trust.py

On one device: numbers of 64 bits, which are looked at before they become 32 bits,
against numbers of 32 bits; and changes of variables with the lock that lets threads
share them, against changes without it. On two workers: steps that send marks to each
other, against the same steps without marks, in turn in the same two processes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rich.console
import rich.table

STEPS, ROUNDS = 50, 80
HERE = str(pathlib.Path(__file__).resolve())
# What a step sums over the replicas, and how its marks travel.
KINDS = {
    "packed": "gradients of three variables (room in the pack)",
    "lone": "one number (packed with the marks)",
    "bf16": "one bfloat16 number (a call of its own)",
    "none": "nothing (a call of its own)",
}


def _time(call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """Returns the microseconds of one call, in a row of calls."""
    begin = time.perf_counter()
    for _ in range(STEPS):
        out = call()
    wait(out)
    return (time.perf_counter() - begin) / STEPS * 1e6


def _compare(
    first: Callable[[], Any],
    second: Callable[[], Any],
    wait: Callable[[Any], Any],
    meet: Callable[[int], Any] = lambda i: None,
) -> tuple[float, float]:
    """Returns the median of a second program, and by how much a first one exceeds it.

    They take turns, and the median of the differences between neighbours counts: over
    a whole run the speed of a machine changes by more than what is measured.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(ROUNDS + 2):
        meet(i)
        for k in (0, 1) if i % 2 else (1, 0):
            took = _time((first, second)[k], wait)
            if i > 1:
                times[k].append(took)
    pairs = zip(*times, strict=True)
    return statistics.median(times[1]), statistics.median(a - b for a, b in pairs)


def measure_wide_numbers() -> dict[str, tuple[float, float]]:
    """Returns by program the time with numbers of 32 bits, and what 64 bits add."""
    import jax

    import unisono as uni

    strategy = uni.distribute.MirroredStrategy(["CPU:0"])
    found = {}
    for size in (32, 16_000):
        double = uni.function(lambda x: x * 2)
        wide, narrow = np.arange(size), np.arange(size, dtype=np.int32)
        found[f"a function of {size:,} integers"] = _compare(
            functools.partial(double, wide),
            functools.partial(double, narrow),
            jax.block_until_ready,
        )
        iterators = [
            iter(
                strategy.experimental_distribute_dataset(
                    uni.data.Dataset.from_tensors(x).repeat()
                )
            )
            for x in (wide, narrow)
        ]
        found[f"the next {size:,} integers of a dataset"] = _compare(
            functools.partial(next, iterators[0]),
            functools.partial(next, iterators[1]),
            jax.block_until_ready,
        )
    return found


def measure_lock() -> dict[str, tuple[float, float]]:
    """Returns by change of a variable its time without the lock, and what it adds."""
    import jax

    import unisono as uni
    from unisono._src.execution import program_calls
    from unisono._src.state import storage

    v, lock = uni.Variable(0.0), storage.LOCK
    step = uni.function(lambda: v.assign_add(1.0))

    def use(chosen: Any, call: Callable[[], Any]) -> Any:
        storage.LOCK = program_calls._lock = chosen
        return call()

    found = {}
    for name, call in (
        ("a compiled step that changes a variable", step),
        ("an eager assign_add", lambda: v.assign_add(1.0)),
    ):
        found[name] = _compare(
            functools.partial(use, lock, call),
            functools.partial(use, contextlib.nullcontext(), call),
            lambda _: jax.block_until_ready(v.value()),
        )
    storage.LOCK = program_calls._lock = lock
    return found


def measure_marks() -> dict[str, tuple[float, float]]:
    """Returns by what steps sum their time without marks, and what marks add."""
    import jax
    import jax.numpy as jnp
    import optax

    import unisono as uni
    from unisono._src.workers import watchdog

    strategy = uni.distribute.MultiWorkerMirroredStrategy()
    rows = uni.data.Dataset.from_tensors(np.ones((2, 4), np.float32)).repeat()
    x = next(iter(strategy.experimental_distribute_dataset(rows)))

    def make(kind: str) -> Callable[[], Any]:
        with strategy.scope():
            variables = [uni.Variable(jnp.zeros(n)) for n in (4, 16, 64)]
            optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), variables)

        def replica(x: Any) -> Any:
            if kind == "packed":
                gradients = [jnp.sum(x) + jnp.zeros(v.shape) for v in variables]
                optimizer.apply_gradients(zip(gradients, variables, strict=True))
            total = jnp.sum(x)
            return total.astype(jnp.bfloat16) if kind == "bf16" else total

        @uni.function
        def step(x: Any) -> Any:
            out = strategy.run(replica, args=(x,))
            return (
                strategy.reduce("SUM", out, None) if kind in ("lone", "bf16") else out
            )

        step(x)
        return lambda: step(x)

    found, find = {}, watchdog.find_ledger
    for kind in KINDS:
        marked = make(kind)
        watchdog.find_ledger = lambda topology: None
        plain = make(kind)
        watchdog.find_ledger = find
        meet = functools.partial(_meet, strategy, kind)
        found[kind] = _compare(marked, plain, jax.block_until_ready, meet)
    return found


def _meet(strategy: Any, kind: str, number: int) -> None:
    strategy.barrier(f"{kind} {number}")


def main() -> None:
    """Measures, and shows a table."""
    if "--worker" in sys.argv:
        found = measure_marks()
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            print("FOUND " + json.dumps(found), flush=True)
        return
    command = [sys.executable, "-m", "unisono", "launch", "-n", "2", "--plain"]
    told = subprocess.run(
        [*command, HERE, "--worker"], capture_output=True, text=True, check=True
    ).stdout
    (line,) = [t.split("FOUND ", 1)[1] for t in told.splitlines() if "FOUND " in t]
    rows: list[Any] = [
        (f"two workers, a step that sums {KINDS[k]}", v)
        for k, v in json.loads(line).items()
    ]
    rows += [*measure_wide_numbers().items(), *measure_lock().items()]
    table = rich.table.Table("program", "without, µs", "more, µs")
    for name, (without, more) in rows:
        table.add_row(name, f"{without:.1f}", f"{more:+.1f}")
    rich.console.Console(width=110).print(table)


if __name__ == "__main__":
    main()
