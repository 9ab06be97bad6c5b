"""Measures checkpoints against bare Orbax, and steps during a background save.

usage: python benchmarks/checkpoints.py [--mb 512] [--rounds 5] [--steps]

Both sides take turns in one process. Bare Orbax is the code that a JAX user writes:
`StandardCheckpointer`, which compresses, flushes files, and checks nothing when it
reads. Unisono stores arrays uncompressed, reads the files back for the checksums, and
verifies every file before it restores.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unisono as uni

_ROWS = 1024


def _timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def _arrays(mb: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((_ROWS, 4096), np.float32) for _ in range(max(1, mb // 16))
    ]


class _Bare:
    """Saves and restores with Orbax, as a JAX user writes it."""

    def __init__(self, arrays: list[np.ndarray], directory: pathlib.Path) -> None:
        import orbax.checkpoint as ocp

        self.tree = {f"v{i}": jnp.asarray(a) for i, a in enumerate(arrays)}
        self.like = jax.tree.map(ocp.utils.to_shape_dtype_struct, self.tree)
        self.path = directory / "bare"
        self.saver = ocp.StandardCheckpointer()

    def save(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.saver.save(self.path, self.tree)
        self.saver.wait_until_finished()

    def restore(self) -> Any:
        self.tree = self.saver.restore(self.path, self.like)
        return self.tree


class _Ours:
    """Saves and restores the same arrays with unisono."""

    def __init__(self, arrays: list[np.ndarray], directory: pathlib.Path) -> None:
        self.variables = [uni.Variable(a) for a in arrays]
        self.checkpoint = uni.train.Checkpoint(v=self.variables)
        self.path = directory / "ours"

    def save(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.checkpoint.write(self.path)

    def restore(self) -> Any:
        self.checkpoint.read(self.path)
        return [v.value() for v in self.variables]


def measure_io(mb: int, rounds: int) -> dict[str, Any]:
    """Returns median seconds of saving and restoring, and the ratios.

    A ratio is the median over the rounds, because within a round both sides run one
    after the other and meet the same load of the machine.
    """
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        arrays = _arrays(mb)
        pair = {
            "bare": _Bare(arrays, pathlib.Path(name)),
            "ours": _Ours(arrays, pathlib.Path(name)),
        }
        del arrays
        for i in range(rounds + 1):
            order = list(pair.items())
            for what in ("save", "restore"):
                for who, side in order if i % 2 else order[::-1]:
                    seconds = _timed(getattr(side, what))
                    if i:  # The first round loads libraries.
                        found.setdefault(f"{who} {what}", []).append(seconds)
        pair["bare"].saver.close()
    result: dict[str, Any] = {k: statistics.median(v) for k, v in found.items()}
    for what in ("save", "restore"):
        pairs = zip(found[f"ours {what}"], found[f"bare {what}"], strict=True)
        result[f"{what} ratio"] = statistics.median(o / b for o, b in pairs)
    return result


def measure_peak(mb: int, whose: str) -> dict[str, float]:
    """Returns the peak memory of one save and restore, in GB, with their seconds.

    The process must be fresh: the peak counts from its start.
    """
    side: Any
    with tempfile.TemporaryDirectory() as name:
        arrays = _arrays(mb)
        side = (_Bare if whose == "bare" else _Ours)(arrays, pathlib.Path(name))
        state = sum(a.nbytes for a in arrays)
        del arrays
        held = _peak()
        save = _timed(side.save)
        after_save = _peak()
        restore = _timed(side.restore)
    return {
        "state_gb": state / 1e9,
        "before_gb": held / 1e9,
        "after_save_gb": after_save / 1e9,
        "after_restore_gb": _peak() / 1e9,
        "save_s": save,
        "restore_s": restore,
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_steps(seconds: float, rounds: int) -> dict[str, float]:
    """Returns the time of a training step without a save and during saves.

    The step is that of an MLP with 100 MB of state. The background saves without a
    pause.
    """
    rng = np.random.default_rng(0)
    layers = [uni.Variable(rng.standard_normal((1024, 1024), np.float32) * 0.02)
              for _ in range(4)]  # fmt: skip
    ballast = uni.Variable(rng.standard_normal((5120, 4096), np.float32))
    x = jnp.asarray(rng.standard_normal((256, 1024), np.float32))

    def loss() -> Any:
        h = x
        for w in layers:
            h = jnp.tanh(h @ w)
        return jnp.mean(h * h)

    @uni.function
    def step() -> Any:
        value, grads = uni.value_and_grad(loss, layers)()
        for w, g in zip(layers, grads, strict=True):
            w.assign_sub(0.1 * g)
        return value

    with tempfile.TemporaryDirectory() as name:
        checkpoint = uni.train.Checkpoint(layers=layers, ballast=ballast)
        options = uni.train.CheckpointOptions(enable_async=True)
        path = pathlib.Path(name) / "c"
        checkpoint.write(path, options)
        checkpoint.sync()

        def run(is_saving: bool) -> tuple[float, float, int]:
            times, blocked, saves = [], [], 0
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                if is_saving and not _is_busy(checkpoint):
                    begin = time.perf_counter()
                    checkpoint.write(path, options)
                    blocked.append(time.perf_counter() - begin)
                    saves += 1
                times.append(_timed(step))
            checkpoint.sync()
            return statistics.median(times), max(blocked, default=0.0), saves

        run(False)
        quiet, busy, blocked, saves = [], [], [], 0
        for _ in range(rounds):
            quiet.append(run(False)[0])
            took, block, count = run(True)
            busy.append(took)
            blocked.append(block)
            saves += count
    return {
        "quiet_ms": statistics.median(quiet) * 1e3,
        "busy_ms": statistics.median(busy) * 1e3,
        "ratio": statistics.median(b / q for b, q in zip(busy, quiet, strict=True)),
        "blocked_ms": statistics.median(blocked) * 1e3,
        "saves": saves,
    }


def _is_busy(checkpoint: Any) -> bool:
    # There is no public way to ask without waiting, and `write` would wait.
    thread = checkpoint._background._thread
    return isinstance(thread, threading.Thread) and thread.is_alive()


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", choices=["bare", "ours"])
    parser.add_argument("--steps", action="store_true")
    given = parser.parse_args()
    if given.peak:
        print(json.dumps(measure_peak(given.mb, given.peak)))
    elif given.steps:
        print(json.dumps(measure_steps(2.0, given.rounds)))
    else:
        print(json.dumps(measure_io(given.mb, given.rounds)))


if __name__ == "__main__":
    main()
