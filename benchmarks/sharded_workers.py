"""Measures what each of several workers holds of a large model, split and mirrored.

usage: python benchmarks/sharded_workers.py [--workers 4] [--layers 8] [--width 1024]
       [--steps 3] [--limit MB] [--save]

Trains a small transformer with Adam in so many processes on one machine, with
`state="mirrored"` and with `state="sharded"`. Shows the state of the model, the most
memory that each process had, the ratio, and the losses, which must be equal. `--limit`
has the system refuse more memory than so many MB to a process. `--save` also saves and
restores, and shows by how much the restore grew a process.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import sys
import tempfile
import time
from typing import Any

import rich.console
import rich.table

ROOT = pathlib.Path(__file__).resolve().parents[1]
Weights = dict[str, Any]


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _status_mb(name: str) -> float:
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith(name)).split()[1]) / 1024


def _make_weights(layers: int, width: int) -> Weights:
    """Returns the variables of a transformer, made in the scope of a strategy."""
    import jax

    import unisono as tf

    shapes = {"queries": (width, 3 * width), "out": (width, width)}
    shapes |= {"up": (width, 4 * width), "down": (4 * width, width)}
    found = {}
    for i in range(layers):
        for n, (name, shape) in enumerate(shapes.items()):
            key = jax.random.key(4 * i + n)
            found[f"{name}_{i}"] = tf.Variable(
                lambda key=key, shape=shape: (
                    jax.random.normal(key, shape) * shape[0] ** -0.5
                ),
                name=f"{name}_{i}",
            )
    return found


def _apply(weights: Weights, x: Any, layers: int) -> Any:
    """Returns the output of all layers for rows of tokens."""
    import jax
    import jax.numpy as jnp

    def normalize(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-6)

    for i in range(layers):
        q, k, v = jnp.split(normalize(x) @ weights[f"queries_{i}"], 3, -1)
        seen = jax.nn.softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5)
        x = x + (seen @ v) @ weights[f"out_{i}"]
        x = x + jax.nn.gelu(normalize(x) @ weights[f"up_{i}"]) @ weights[f"down_{i}"]
    return x


def _save_and_restore(weights: Weights, optimizer: Any, directory: str) -> float:
    """Returns by how many MB a restore has grown the process."""
    import unisono as tf

    checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer)
    path = checkpoint.write(f"{directory}/c")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = _status_mb("VmRSS")
    checkpoint.read(path).assert_consumed()
    return _status_mb("VmHWM") - before


def train(
    state: str, layers: int, width: int, steps: int, limit: int, directory: str
) -> dict[str, Any]:
    """Trains in one worker; returns what it held, and the losses."""
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit << 20, limit << 20))
    import jax
    import jax.numpy as jnp
    import optax

    import unisono as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy(state=state)  # type: ignore[arg-type]
    with strategy.scope():
        weights = _make_weights(layers, width)
        every = list(weights.values())
        optimizer = tf.optimizers.Optimizer(optax.adam(1e-3), every)

    @tf.function
    def step(x: Any) -> Any:
        def replica(x: Any) -> Any:
            with tf.GradientTape() as tape:
                # `value`, because each of the weights is read once.
                out = _apply(weights, x, layers)
                loss = jnp.mean((out - jnp.roll(x, 1, -2)) ** 2)
            grads = tape.gradient(loss, every)
            optimizer.apply_gradients(zip(grads, every, strict=True))
            return loss

        return strategy.reduce("MEAN", strategy.run(replica, args=(x,)), axis=None)

    def batch(context: Any) -> Any:
        key = jax.random.key(1000 + context.replica_id_in_sync_group)
        return jax.random.normal(key, (1, 16, width))

    x = strategy.experimental_distribute_values_from_function(batch)
    losses, begin = [], time.perf_counter()
    for _ in range(steps):
        losses.append(float(step(x)))
    seconds = time.perf_counter() - begin
    peak = _peak_mb()
    size = sum(v.size * v.dtype.itemsize for v in (*every, *optimizer.variables)) / 1e6
    grown = _save_and_restore(weights, optimizer, directory) if directory else 0.0
    found = {"losses": losses, "peak": peak, "state": size, "seconds": seconds}
    return {**found, "grown": grown}


def main() -> None:
    """Trains both ways, and shows a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("workers", 4), ("layers", 8), ("width", 1024), ("steps", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    import unisono

    table = rich.table.Table("state", "of the model, MB", "peak, MB", "ratio", "losses")
    table.add_column("restore, MB more")
    console, whole = rich.console.Console(width=120), 0.0
    for state in ("mirrored", "sharded"):
        with tempfile.TemporaryDirectory() as directory:
            kwargs = {"state": state, "layers": given.layers, "width": given.width}
            kwargs |= {"steps": given.steps, "limit": given.limit}
            kwargs["directory"] = directory if given.save else ""
            try:
                told = unisono.launch(
                    f"{__file__}:train", given.workers, platform="cpu", kwargs=kwargs
                )
            except unisono.errors.LaunchError as error:
                table.add_row(state, "", "", "", str(error).strip().splitlines()[-1])
                continue
        peaks = [x["peak"] for x in told]
        whole = whole or max(peaks)
        console.print(json.dumps({"state": state, "workers": told}))
        table.add_row(
            state,
            f"{told[0]['state']:,.0f}",
            ", ".join(f"{p:,.0f}" for p in peaks),
            f"{max(peaks) / whole:.2f}",
            ", ".join(f"{x:.6f}" for x in told[0]["losses"]),
            ", ".join(f"{x['grown']:.0f}" for x in told),
        )
    console.print(table)


if __name__ == "__main__":
    main()
