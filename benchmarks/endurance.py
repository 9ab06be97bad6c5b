"""Runs many steps without waiting for any, on virtual CPU devices.

usage: python benchmarks/endurance.py [replicas] [steps]

Hand-written JAX deadlocks here after a few hundred steps, and XLA aborts it 40 s later
(docs/decisions/0005). No environment variable is set.
"""

from __future__ import annotations

import resource
import sys
import time

import jax.numpy as jnp

import unisono as uni


def main() -> None:
    """Runs the steps and prints their time, their sum and the peak memory."""
    replicas = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        v = uni.Variable(0.0, aggregation=uni.VariableAggregation.SUM)

    @uni.function
    def step(x: object) -> object:
        return strategy.run(lambda x: v.assign_add(x * 1.0), args=(x,))

    one = strategy.experimental_distribute_values_from_function(lambda c: jnp.ones(()))
    step(one)
    v.assign(0.0)
    begin, peak = time.perf_counter(), []
    for i in range(steps):
        step(one)
        if i % (steps // 4) == 0:
            peak.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    total = float(v.numpy())
    peak.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    each = (time.perf_counter() - begin) / steps * 1e6
    # float32 counts by ones no further than 2**24.
    expected = min(replicas * steps, 1 << 24)
    print(
        f"{replicas} replicas: {steps:,} steps, {each:.0f} µs each, sum {total:,.0f} "
        f"(expected {expected:,}), peak memory after each quarter {peak} MiB"
    )


if __name__ == "__main__":
    main()
