"""Measures the figures of the documentation and writes their result files.

usage: python benchmarks/figures.py {overhead,memory} [--rounds 15]

A result file says how its figures came about: the command, the versions, the machine
and the date. The documentation shows no figure without one.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from typing import Any

RESULTS = pathlib.Path(__file__).parents[1] / "docs" / "performance" / "results"
PACKAGES = ("unisono", "jax", "jaxlib", "numpy", "optax")


def _machine() -> str:
    """Returns the processor, its number of cores, and how busy the machine is."""
    name = platform.processor() or platform.machine()
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    busy = os.getloadavg()[0]
    return f"{name}, {os.cpu_count()} cores, load {busy:.1f}"


def _write(name: str, results: dict[str, Any]) -> None:
    versions = {"python": platform.python_version()}
    versions |= {p: importlib.metadata.version(p) for p in PACKAGES}
    told = {
        **results,
        "command": f"python benchmarks/figures.py {' '.join(sys.argv[1:])}",
        "versions": versions,
        "machine": _machine(),
        "date": datetime.date.today().isoformat(),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print(path)


def overhead(rounds: int) -> None:
    """Measures steps against hand-written JAX; the programs take turns."""
    import run

    figures = []
    for case in run.CASES:
        for replicas in (1, 8):
            found = run.child(["--measure", case, str(replicas), str(rounds)])
            figures.append(
                {
                    "name": f"{case}, {replicas} replica{'s' if replicas > 1 else ''}",
                    "value": round(found["ratio"], 3),
                    "jax_us": round(found["raw_us"], 1),
                    "unisono_us": round(found["ours_us"], 1),
                    "all_reduces": found["collectives"],
                }
            )
            print(figures[-1], flush=True)
    results: dict[str, Any] = {
        "title": "Time of a step, divided by that of hand-written JAX; lower is better",
        "unit": "×",
        "reference": 1,
        "reference_name": "hand-written JAX",
        "figures": figures,
    }
    _write("overhead", results)


def memory(rounds: int) -> None:
    """Counts the bytes that weights and Adam's slots take on each device."""
    import jax.numpy as jnp
    import optax

    import unisono as uni

    uni.config.set_virtual_devices(8)
    figures = []
    for count in (1, 2, 8):
        for state in ("mirrored", "sharded"):
            names = [f"CPU:{i}" for i in range(count)]
            strategy = uni.distribute.MirroredStrategy(names, state=state)
            with strategy.scope():
                weights = [uni.Variable(jnp.zeros((1024, 1024)))]
                optimizer = uni.optimizers.Optimizer(optax.adam(1e-3), weights)
            found = strategy.describe([*weights, *optimizer.variables])
            figure = {
                "name": f"{state}, {count} device{'s' if count > 1 else ''}",
                "value": round(found.bytes_per_device / 2**20, 2),
                "fill": "warm" if state == "mirrored" else "fresh",
            }
            figures.append(figure)
    title = "State per device: a weight of 1024 × 1024 with Adam's slots"
    _write("memory", {"title": title, "unit": "MiB", "figures": figures})


def main() -> None:
    """Measures what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", choices=("overhead", "memory"))
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    {"overhead": overhead, "memory": memory}[given.figures](given.rounds)


if __name__ == "__main__":
    main()
