"""Measures the figures of the documentation and writes their result files.

usage: python benchmarks/figures.py {overhead,scaling,memory,frameworks,servers,losses}
           [--rounds 15] [--tensorflow PYTHON] [--pytorch PYTHON]

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


def _command() -> str:
    """Returns the command line, without the folders of other interpreters."""
    words = [pathlib.Path(w).name if "/" in w else w for w in sys.argv[1:]]
    return f"python benchmarks/figures.py {' '.join(words)}"


def _write(
    name: str, results: dict[str, Any], others: dict[str, str] | None = None
) -> None:
    """Writes a result file.

    Args:
        name: the name of the file.
        results: the figures, and how to draw them.
        others: the versions of other frameworks.
    """
    versions = {"python": platform.python_version()}
    versions |= {p: importlib.metadata.version(p) for p in PACKAGES}
    versions |= others or {}
    told = {
        **results,
        "command": _command(),
        "versions": versions,
        "machine": _machine(),
        "date": datetime.date.today().isoformat(),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print(path)


def overhead(given: argparse.Namespace) -> None:
    """Measures steps against hand-written JAX; the programs take turns.

    The best round of each counts, as others may use the machine, too.
    """
    import run

    figures = []
    for case in run.CASES:
        for replicas in (1, 8):
            found = run.child(["--measure", case, str(replicas), str(given.rounds)])
            figures.append(
                {
                    "name": f"{case}, {replicas} replica{'s' if replicas > 1 else ''}",
                    "value": round(found["best_ratio"], 3),
                    "median_ratio": round(found["ratio"], 3),
                    "more_us": round(found["more_us"], 1),
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


def scaling(given: argparse.Namespace) -> None:
    """Measures a step of the MLP on more and more devices, beside hand-written JAX."""
    import run

    counts = (1, 2, 4, 8)
    found = [run.child(["--measure", "MLP", str(n), str(given.rounds)]) for n in counts]
    lines = {"hand-written JAX": "raw_us", "unisono": "ours_us"}
    figures = [
        {"name": name, "values": [round(f[key] / 1000, 2) for f in found]}
        for name, key in lines.items()
    ]
    results: dict[str, Any] = {
        "title": "Milliseconds of a step of the MLP, 64 examples per replica",
        "unit": "ms",
        "axis": "replicas",
        "at": counts,
        "figures": figures,
    }
    _write("scaling", results)


def frameworks(given: argparse.Namespace) -> None:
    """Measures a step of the MLP beside JAX, TensorFlow and PyTorch."""
    import frameworks

    pythons = {"unisono": sys.executable, "JAX": sys.executable}
    pythons |= {"TensorFlow": given.tensorflow} if given.tensorflow else {}
    pythons |= {"PyTorch": given.pytorch} if given.pytorch else {}
    found = frameworks.compare(pythons, given.rounds)
    figures = [
        {
            "name": f"{name}, {replicas} replica{'s' if replicas > 1 else ''}",
            "value": round(told["ratio"], 2),
            "ms": round(told["seconds"] * 1000, 2),
            "fill": "fresh" if name == "unisono" else "calm",
        }
        for (name, replicas), told in found.items()
    ]
    results: dict[str, Any] = {
        "title": "Time of a training step, divided by unisono's; higher is slower",
        "unit": "×",
        "reference": 1,
        "reference_name": "unisono",
        "figures": figures,
    }
    others = {
        package: frameworks.version(pythons[name], package)
        for name, package in frameworks.NAMES.items()
        if package and name in pythons
    }
    _write("frameworks", results, others)


def servers(given: argparse.Namespace) -> None:
    """Measures closures on two workers and two servers, beside TensorFlow."""
    import frameworks
    import parameter_server

    best = parameter_server.rates(given.tensorflow, given.rounds)
    figures = [
        {
            "name": f"{who}, {name}",
            "value": round(best[who, name]),
            "fill": "fresh" if who == "unisono" else "calm",
        }
        for name in parameter_server.PROGRAMS
        for who in ("unisono", "TensorFlow")
    ]
    results: dict[str, Any] = {
        "title": "Closures per second of a ClusterCoordinator; higher is better",
        "unit": "/s",
        "figures": figures,
    }
    others = {"ray": importlib.metadata.version("ray")}
    others["tensorflow"] = frameworks.version(given.tensorflow, "tensorflow")
    _write("servers", results, others)


def memory(given: argparse.Namespace) -> None:
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


def losses(given: argparse.Namespace) -> None:
    """Trains the digits of the examples on one replica and on eight."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))
    import digits

    import unisono as uni

    uni.config.set_virtual_devices(8)
    epochs, images = 12, digits.load_digits()
    figures = []
    for name, strategy in (
        ("1 replica", uni.distribute.OneDeviceStrategy("CPU:0")),
        ("8 replicas", uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(8)])),
    ):
        found = digits.train(strategy, images, epochs, lambda *_: None)
        figures.append({"name": name, "values": [round(x, 9) for x in found.losses]})
    results: dict[str, Any] = {
        "title": "Training loss of `examples/digits.py` on one replica and on eight",
        "unit": "loss",
        "axis": "epoch",
        "at": list(range(1, epochs + 1)),
        "figures": figures,
    }
    _write("losses", results)


FIGURES = {
    f.__name__: f for f in (overhead, scaling, memory, frameworks, servers, losses)
}


def main() -> None:
    """Measures what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", choices=FIGURES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tensorflow", metavar="PYTHON")
    parser.add_argument("--pytorch", metavar="PYTHON")
    given = parser.parse_args()
    if given.figures == "servers" and not given.tensorflow:
        parser.error("servers are compared with TensorFlow: name its --tensorflow.")
    FIGURES[given.figures](given)


if __name__ == "__main__":
    main()
