"""Measures an eager `run` with one `assign_add` and with one `all_reduce`.

usage: python benchmarks/eager.py [--tensorflow path/to/python]

The same is measured by hand in JAX and, if a Python that has TensorFlow is named, in
TensorFlow.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import textwrap
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
import rich.table
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import unisono as uni

REPLICAS, CALLS, ROUNDS = 2, 200, 25

# The other Python runs this text. Its loops are the same as those of `measure`.
TENSORFLOW = """
import json, time
import tensorflow as tf
calls, rounds = {calls}, {rounds}
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * {replicas})
strategy = tf.distribute.MirroredStrategy([f"CPU:{{i}}" for i in range({replicas})])
with strategy.scope():
    v = tf.Variable(tf.zeros(2), aggregation=tf.VariableAggregation.MEAN)
ones = strategy.experimental_distribute_values_from_function(lambda c: tf.ones(2))
def assign(x): v.assign_add(x)
def reduce(x): return tf.distribute.get_replica_context().all_reduce("SUM", x)
found = {{}}
for name, fn in (("assign_add", assign), ("all_reduce", reduce)):
    for _ in range(20): strategy.run(fn, args=(ones,))
    best = 1e9
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls): strategy.run(fn, args=(ones,))
        v.numpy()
        best = min(best, (time.perf_counter() - start) / calls)
    found[name] = best
print(json.dumps(found))
"""


def measure(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Returns the seconds of one call, in the fastest of several rounds."""
    for _ in range(20):
        call()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        wait()
        best = min(best, (time.perf_counter() - start) / CALLS)
    return best


def ours() -> dict[str, float]:
    """Returns the times under a strategy, by operation."""
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])
    with strategy.scope():
        v = uni.Variable(jnp.zeros(2), aggregation=uni.VariableAggregation.MEAN)
    ones = strategy.experimental_distribute_values_from_function(lambda c: jnp.ones(2))

    def assign(x: Any) -> None:
        v.assign_add(x)

    def reduce(x: Any) -> Any:
        return uni.distribute.get_replica_context().all_reduce("SUM", x)

    return {
        "assign_add": measure(lambda: strategy.run(assign, args=(ones,)), v.numpy),
        "all_reduce": measure(lambda: strategy.run(reduce, args=(ones,)), v.numpy),
    }


def by_hand() -> dict[str, float]:
    """Returns the times with JAX arrays on two devices, by operation.

    Each JAX operation is dispatched by itself, as in an eager step.
    """
    devices = jax.devices("cpu")[:REPLICAS]
    mesh = Mesh(np.array(devices, dtype=object), ("replica",))
    same = NamedSharding(mesh, PartitionSpec())
    held = [jax.device_put(jnp.zeros(2), same)]
    parts = [jax.device_put(jnp.ones(2), d) for d in devices]

    def total() -> Any:
        moved = [jax.device_put(p, devices[0]) for p in parts]
        return sum(moved[1:], moved[0])

    def assign() -> None:
        held[0] = held[0] + jax.device_put(total() / REPLICAS, same)

    def reduce() -> Any:
        return [jax.device_put(total(), d) for d in devices]

    def wait() -> None:
        np.asarray(held[0])

    return {"assign_add": measure(assign, wait), "all_reduce": measure(reduce, wait)}


def tensorflow(python: str) -> dict[str, float]:
    """Returns the times in TensorFlow, which runs in its own process."""
    code = TENSORFLOW.format(calls=CALLS, rounds=ROUNDS, replicas=REPLICAS)
    done = subprocess.run(
        [python, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensorflow", metavar="PYTHON", help="a Python that has it")
    asked = parser.parse_args()
    uni.config.set_virtual_devices(REPLICAS)
    mine, hand = ours(), by_hand()
    theirs = tensorflow(asked.tensorflow) if asked.tensorflow else {}
    table = rich.table.Table(title=f"An eager run on {REPLICAS} replicas, µs")
    for column in ("in it", "unisono", "by hand", "ratio", "TensorFlow", "ratio"):
        table.add_column(column, justify="left" if column == "in it" else "right")
    for name, seconds in mine.items():
        row = [name, f"{seconds * 1e6:.0f}", f"{hand[name] * 1e6:.0f}"]
        row.append(f"{seconds / hand[name]:.2f}")
        if theirs:
            row += [f"{theirs[name] * 1e6:.0f}", f"{seconds / theirs[name]:.2f}"]
        table.add_row(*row)
    rich.console.Console().print(table)


if __name__ == "__main__":
    main()
