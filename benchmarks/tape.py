"""Measures steps with a gradient tape against the same steps with `value_and_grad`.

usage: python benchmarks/tape.py [--device GPU:0] [--small]

The two programs of a row take turns in one process. Each row has the time of a compiled
step, the time of tracing it, and the instructions of its program. The last row is a
step that runs eagerly.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import gpu
import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.console
import rich.table
import steps

import unisono as uni

Loss = Callable[[], Any]


def by_function(loss: Loss, variables: list[Any]) -> tuple[Any, Any]:
    """Returns a loss and its gradients by `value_and_grad`."""
    return uni.value_and_grad(loss, variables)()


def by_tape(loss: Loss, variables: list[Any]) -> tuple[Any, Any]:
    """Returns a loss and its gradients by a tape."""
    with uni.GradientTape() as tape:
        value = loss()
    return value, tape.gradient(value, variables)


def mlp(
    differentiate: Callable[..., Any], devices: list[str]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Returns a training step of the classifier, and its arguments."""
    strategy = uni.distribute.MirroredStrategy(devices)
    rng = np.random.default_rng(0)
    total = steps.PER_REPLICA * len(devices)
    x = rng.normal(size=(total, steps.INPUTS)).astype(np.float32)
    y = rng.integers(0, 10, total).astype(np.int32)
    with strategy.scope():
        made = [uni.Variable(p) for p in steps.initial(np.random.default_rng(0))]
        optimizer = uni.optimizers.Optimizer(optax.adam(1e-3), made)

    def step(x: Any, y: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            def loss() -> Any:
                return steps.loss_of([v.value() for v in made], x, y, total)

            value, grads = differentiate(loss, made)
            optimizer.apply_gradients(zip(grads, made, strict=True))
            return value

        return strategy.reduce("SUM", strategy.run(replica, args=(x, y)), axis=None)

    parts = strategy.experimental_distribute_values_from_function(
        lambda c: (
            x.reshape(len(devices), steps.PER_REPLICA, -1)[c.replica_id_in_sync_group],
            y.reshape(len(devices), steps.PER_REPLICA)[c.replica_id_in_sync_group],
        )
    )
    return step, parts


def gpt2(
    differentiate: Callable[..., Any], device: str, batch: int, length: int, layers: int
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Returns a training step of a model of GPT-2's shape, and its arguments."""
    start = gpu.initial(layers, gpu.WIDTH, gpu.VOCABULARY, length)
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 50257, (batch, length + 1)).astype(np.int32)
    strategy = uni.distribute.MirroredStrategy([device])
    flat, treedef = jax.tree.flatten(start)
    with strategy.scope():
        made = [uni.Variable(x) for x in flat]
        optimizer = uni.optimizers.Optimizer(optax.adam(1e-4), made)

    def step(tokens: Any) -> Any:
        def replica(tokens: Any) -> Any:
            def loss() -> Any:
                return gpu.loss(treedef.unflatten([v.value() for v in made]), tokens)

            value, grads = differentiate(loss, made)
            optimizer.apply_gradients(zip(grads, made, strict=True))
            return value

        return strategy.reduce("SUM", strategy.run(replica, args=(tokens,)), axis=None)

    return step, (jnp.asarray(tokens),)


def instructions(lowered: Any) -> int:
    """Returns the number of instructions of a compiled program."""
    lines = lowered.compile().as_text().splitlines()
    return sum(" = " in line for line in lines)


def trace(step: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, float]:
    """Returns the lowered program of a step, and the shortest time of tracing it."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        lowered = uni.function(lambda *args: step(*args)).lowered(*args)
        times.append(time.perf_counter() - begin)
    return lowered, min(times)


def compare(pair: list[Callable[[], Any]], count: int, rounds: int) -> list[float]:
    """Returns the times of a step of both programs and the median of their ratio."""
    times: list[list[float]] = [[], []]
    for i in range(rounds + 1):
        # The order alternates, so that neither program always runs on a warm cache.
        for k in (0, 1) if i % 2 else (1, 0):
            begin = time.perf_counter()
            for _ in range(count):
                out = pair[k]()
            out.block_until_ready()
            if i:  # The first round compiles.
                times[k].append((time.perf_counter() - begin) / count)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    return [*(1e6 * statistics.median(t) for t in times), ratio]


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="GPU:0")
    parser.add_argument("--small", action="store_true", help="a model for CPU")
    arguments = parser.parse_args()
    device, small = arguments.device, arguments.small
    kind = device.partition(":")[0]
    devices = [f"{kind}:0", f"{kind}:1"] if kind == "CPU" else [device]
    shape = (1, 64, 1) if small else (16, 1024, gpu.LAYERS)
    # A step of the classifier takes less than 100 µs on a GPU, so it needs many.
    short = (12, 9) if kind == "CPU" else (500, 41)
    cases = {
        "MLP": (lambda d: mlp(d, devices), *short),
        "GPT-2": (lambda d: gpt2(d, device, *shape), 2 if small else 20, 9),
    }
    columns = ("step", "value_and_grad", "tape", "ratio", "tracing", "instructions")
    table = rich.table.Table(*columns, title=f"jax {jax.__version__}, {device}")
    for name, (make, count, rounds) in cases.items():
        made = [make(by_function), make(by_tape)]
        traced = [trace(step, args) for step, args in made]
        compiled = [(uni.function(step), args) for step, args in made]
        pair = [lambda f=f, a=a: f(*a) for f, a in compiled]  # type: ignore[misc]
        first, second, ratio = compare(pair, count, rounds)
        counts = [instructions(lowered) for lowered, _ in traced]
        table.add_row(
            name,
            f"{first:,.0f} µs",
            f"{second:,.0f} µs",
            f"{ratio:.3f}",
            f"{traced[1][1] / traced[0][1]:.2f}",
            f"{counts[0]} and {counts[1]}",
        )
    made = [mlp(by_function, devices[:1]), mlp(by_tape, devices[:1])]
    pair = [lambda f=f, a=a: f(*a) for f, a in made]  # type: ignore[misc]
    first, second, ratio = compare(pair, 4, 15)
    table.add_row(
        "MLP, eager", f"{first:,.0f} µs", f"{second:,.0f} µs", f"{ratio:.3f}", "", ""
    )
    rich.console.Console().print(table)


if __name__ == "__main__":
    main()
