"""Measures unisono against hand-written JAX and prints the ratios.

usage: python benchmarks/run.py [--quick]

Every figure compares two programs that take turns in one process, so that a busy
machine slows both alike. Absolute times only make the ratios readable.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import rich.console
import rich.table

CASES = ("1 variable", "100 variables", "MLP")
STEPS = {"1 variable": 300, "100 variables": 60, "MLP": 12}
# Wait after so many steps: hand-written JAX deadlocks on virtual CPU devices if it
# never waits (docs/decisions/0005).
BURST = 8
# The figures to reach by case and number of replicas; 0 stands for any number.
REACH = {
    ("1 variable", 1): "≤ 8 more",
    ("1 variable", 2): "≤ 1.15×",
    ("1 variable", 8): "≤ 1.15×",
    ("100 variables", 0): "≤ 1.15×",
    ("MLP", 0): "≤ 1.02×",
}


def _pair(case: str, replicas: int) -> Any:
    import steps

    if case == "MLP":
        return steps.mlp_step(replicas)
    return steps.variables_step(replicas, int(case.split()[0]))


def _burst(step: Callable[[], Any], count: int) -> float:
    begin = time.perf_counter()
    for i in range(count):
        out = step()
        if i % BURST == BURST - 1:
            out.block_until_ready()
    out.block_until_ready()
    return (time.perf_counter() - begin) / count


def measure(case: str, replicas: int, rounds: int) -> dict[str, Any]:
    """Returns the median time of a step of each program and their median ratio."""
    pair = _pair(case, replicas)
    count = STEPS[case]
    for step in (pair.raw, pair.ours):
        _burst(step, 2 * BURST)
    raw, ours = [], []
    for i in range(rounds):
        order = [(pair.raw, raw), (pair.ours, ours)]
        for step, times in order if i % 2 else order[::-1]:
            times.append(_burst(step, count))
    ratios = [o / r for o, r in zip(ours, raw, strict=True)]
    best = min(ours) - min(raw)
    return {
        "raw_us": statistics.median(raw) * 1e6,
        "ours_us": statistics.median(ours) * 1e6,
        "more_us": best * 1e6,
        "ratio": statistics.median(ratios),
        "best_ratio": min(ours) / min(raw),
        "collectives": _collectives(pair),
    }


def _collectives(pair: Any) -> list[int]:
    counts = []
    for lowered in pair.lowered():
        text = lowered.compile().as_text()
        counts.append(text.count(" all-reduce(") + text.count(" all-reduce-start("))
    return counts


def first_call(case: str, replicas: int, whose: str) -> float:
    """Returns the seconds of tracing and compiling a step, in this fresh process.

    They are the time of the first call less that of a later one, which only runs.
    """
    step = getattr(_pair(case, replicas), whose)
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        step().block_until_ready()
        times.append(time.perf_counter() - begin)
    return times[0] - min(times[1:])


def child(arguments: list[str], program: str = __file__) -> Any:
    """Returns what a program prints last, as JSON; it runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True
    )
    done.check_returncode()
    return json.loads(done.stdout.strip().splitlines()[-1])


def _start_devices(replicas: int) -> None:
    import unisono as uni

    if replicas > 1:
        uni.config.set_virtual_devices(replicas)
        uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _steps_table(console: rich.console.Console, rounds: int) -> None:
    table = rich.table.Table(title="One step: unisono against hand-written JAX")
    for head in ("step", "n", "JAX µs", "ours µs", "more", "ratio", "best", "reach",
                 "all-reduces"):  # fmt: skip
        table.add_column(head, justify="right", no_wrap=True)
    for case in CASES:
        for replicas in (1, 2, 8):
            console.print(f"[dim]{case}, {replicas} replica(s) …")
            r = child(["--measure", case, str(replicas), str(rounds)])
            reach = REACH.get((case, replicas)) or REACH.get((case, 0), "")
            table.add_row(
                case, str(replicas), f"{r['raw_us']:,.0f}", f"{r['ours_us']:,.0f}",
                f"{r['more_us']:+,.1f}", f"{r['ratio']:.3f}", f"{r['best_ratio']:.3f}",
                reach, f"{r['collectives'][0]} / {r['collectives'][1]}",
            )  # fmt: skip
    console.print(table)


def _first_table(console: rich.console.Console, rounds: int) -> None:
    table = rich.table.Table(title="First call of the MLP step: trace and compile")
    for head in ("replicas", "JAX s", "unisono s", "ratio", "to 1 replica"):
        table.add_column(head, justify="right")
    base = 0.0
    for replicas in (1, 8, 32):
        console.print(f"[dim]first call, {replicas} replica(s) …")
        found: dict[str, list[float]] = {"raw": [], "ours": []}
        for _ in range(rounds):
            for whose, times in found.items():
                times.append(child(["--first", "MLP", str(replicas), whose]))
        raw, ours = min(found["raw"]), min(found["ours"])
        base = base or ours
        table.add_row(
            str(replicas), f"{raw:.2f}", f"{ours:.2f}", f"{ours / raw:.2f}",
            f"{ours / base:.2f}",
        )  # fmt: skip
    console.print(table)
    console.print("reach: ratio ≤ 1.3, and 32 replicas ≤ 1.3 × 1 replica")


def _import_line(console: rich.console.Console, rounds: int) -> None:
    best = {"jax": float("inf"), "unisono": float("inf")}
    for _ in range(rounds):
        for name in best:
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {name}"], check=True)
            best[name] = min(best[name], time.perf_counter() - begin)
    ratio = best["unisono"] / best["jax"]
    console.print(f"`import unisono`: {ratio:.2f} × `import jax` (reach: ≤ 1.3)")


def _checkpoint_tables(console: rich.console.Console, rounds: int) -> None:
    program = str(pathlib.Path(__file__).with_name("checkpoints.py"))
    console.print("[dim]checkpoints of 256 MB …")
    found = child(["--mb", "256", "--rounds", str(rounds)], program)
    table = rich.table.Table(title="Checkpoint of 256 MB: unisono against bare Orbax")
    for head in ("", "Orbax s", "unisono s", "ratio", "reach"):
        table.add_column(head, justify="right")
    for what in ("save", "restore"):
        table.add_row(
            what, f"{found[f'bare {what}']:.2f}", f"{found[f'ours {what}']:.2f}",
            f"{found[f'{what} ratio']:.2f}", "≤ 1.1×",
        )  # fmt: skip
    console.print(table)
    console.print("[dim]steps while checkpoints are saved …")
    found = child(["--steps", "--rounds", str(rounds)], program)
    table = rich.table.Table(title="A step while 100 MB are saved over and over")
    for head in ("quiet ms", "saving ms", "ratio", "reach", "save blocks ms"):
        table.add_column(head, justify="right")
    table.add_row(
        f"{found['quiet_ms']:.1f}", f"{found['busy_ms']:.1f}", f"{found['ratio']:.2f}",
        "≤ 1.1×", f"{found['blocked_ms']:.1f}",
    )  # fmt: skip
    console.print(table)


def main() -> None:
    """Prints the tables, or with ``--measure`` or ``--first`` one figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--first", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        case, replicas, rounds = arguments.measure
        _start_devices(int(replicas))
        print(json.dumps(measure(case, int(replicas), int(rounds))))
    elif arguments.first:
        case, replicas, whose = arguments.first
        _start_devices(int(replicas))
        print(json.dumps(first_call(case, int(replicas), whose)))
    else:
        console = rich.console.Console(width=None if sys.stdout.isatty() else 110)
        _steps_table(console, 5 if arguments.quick else 15)
        _first_table(console, 1 if arguments.quick else 3)
        _import_line(console, 3 if arguments.quick else 10)
        _checkpoint_tables(console, 3 if arguments.quick else 7)


if __name__ == "__main__":
    main()
