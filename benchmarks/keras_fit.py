"""Measures Keras' `fit` under a strategy against plain Keras.

usage: python benchmarks/keras_fit.py [--quick]

On one device it is compared with plain `fit`, on several devices with
`keras.distribution.DataParallel`. Both programs take turns in one process, one process
for each number of devices. The figure to look at is the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import rich.console
import rich.table

REACH = "≤ 1.02×"
BATCH, BATCHES, HIDDEN = 256, 40, 512


def _data() -> Any:
    import numpy as np

    rng = np.random.default_rng(0)
    count = BATCH * BATCHES
    return rng.normal(size=(count, 128)).astype("f4"), rng.integers(0, 10, count)


def _model() -> Any:
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    hidden = [layers.Dense(HIDDEN, activation="relu") for _ in range(2)]
    model = keras.Sequential([layers.Input((128,)), *hidden, layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def _plain(devices: int) -> Any:
    """Returns a function that fits one epoch with Keras alone."""
    import contextlib

    import keras

    scope: Any = contextlib.nullcontext
    if devices > 1:
        names = [f"cpu:{i}" for i in range(devices)]
        scope = keras.distribution.DataParallel(devices=names).scope
    with scope():
        model = _model()
    x, y = _data()

    def epoch() -> float:
        with scope():
            fitted = model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
        return fitted.history["loss"][0]

    return epoch


def _ours(devices: int) -> Any:
    """Returns a function that fits one epoch under a strategy."""
    import unisono as uni

    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)])
    with strategy.scope():
        model = _model()
    x, y = _data()

    def epoch() -> float:
        fitted = model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
        return fitted.history["loss"][0]

    return epoch


def measure(devices: int, rounds: int) -> dict[str, Any]:
    """Returns the median time of an epoch of each program and their median ratio."""
    import unisono as uni

    # Virtual devices change the threads that JAX uses, so both programs get them.
    uni.config.set_virtual_devices(max(devices, 1))
    ours, plain = _ours(devices), _plain(devices)
    losses = [(ours(), plain()) for _ in range(2)]
    times: dict[str, list[float]] = {"ours": [], "plain": []}
    for i in range(rounds):
        pair = [("ours", ours), ("plain", plain)]
        for name, epoch in pair if i % 2 else pair[::-1]:
            begin = time.perf_counter()
            epoch()
            times[name].append(time.perf_counter() - begin)
    pairs = zip(times["ours"], times["plain"], strict=True)
    return {
        "ours_ms": statistics.median(times["ours"]) * 1e3,
        "plain_ms": statistics.median(times["plain"]) * 1e3,
        "ratio": statistics.median(o / p for o, p in pairs),
        "best_ratio": min(times["ours"]) / min(times["plain"]),
        "loss_difference": max(abs(a - b) for a, b in losses),
    }


def _apart(devices: int, rounds: int) -> dict[str, Any]:
    """Measures in a new process, because a process cannot change its devices."""
    command = [sys.executable, __file__, "--devices", str(devices)]
    command += ["--rounds", str(rounds)]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    found = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    if found.returncode:
        raise SystemExit(found.stderr)
    return json.loads(found.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--devices", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.devices is not None:
        print(json.dumps(measure(given.devices, given.rounds)))
        return
    table = rich.table.Table(title="Keras fit, one epoch of 40 batches of 256")
    table.add_column("devices", justify="right")
    table.add_column("against")
    for head in ("unisono", "Keras", "median ratio", "best ratio", "to reach"):
        table.add_column(head, justify="right")
    for devices in (1, 2, 4):
        found = _apart(devices, 5 if given.quick else 15)
        table.add_row(
            str(devices),
            "plain fit" if devices == 1 else "DataParallel",
            f"{found['ours_ms']:.0f} ms",
            f"{found['plain_ms']:.0f} ms",
            f"{found['ratio']:.3f}×",
            f"{found['best_ratio']:.3f}×",
            REACH,
        )
    rich.console.Console(width=100).print(table)


if __name__ == "__main__":
    main()
