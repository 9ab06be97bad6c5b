"""Measures split state and split work against JAX with `jit` and `NamedSharding`.

usage: python benchmarks/logical.py [--quick] [--devices 1 2 8] [--kind CPU]

There are three cases, each a 784-512-512-10 classifier with Adam. *Sharded state*: each
device has a replica, and weights and slots of 65,536 elements or more are split over
the devices. *Logical split*: one replica spans all devices, and annotations split its
hidden layers. *Both*: one replica spans all devices, and its weights and slots are also
split. The two programs of a row take turns in one process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import rich.console
import rich.table

CASES = ("sharded state", "logical split", "both")
STEPS = 12
# Wait after so many steps: hand-written JAX deadlocks on virtual CPU devices if it
# never waits (docs/decisions/0005).
BURST = 4
REACH = "≤ 1.03×"


def _batch(count: int) -> Any:
    import numpy as np
    import steps

    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, steps.INPUTS)).astype(np.float32)
    return x, rng.integers(0, 10, count).astype(np.int32)


def _loss(params: Any, x: Any, y: Any, total: int, hint: Callable[[Any], Any]) -> Any:
    import jax
    import optax

    for i in range(0, len(params) - 2, 2):
        x = hint(jax.nn.relu(x @ params[i] + params[i + 1]))
    logits = x @ params[-2] + params[-1]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).sum() / total


class Hand:
    """Trains as a JAX user writes it: with `jit`, a mesh and a sharding per array."""

    def __init__(self, case: str, devices: int, kind: str, total: int) -> None:
        import jax
        import numpy as np
        import optax
        import steps
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        found = np.array(jax.devices(kind.lower())[:devices], dtype=object)
        mesh = Mesh(found, ("d",))
        same = NamedSharding(mesh, PartitionSpec())
        rows = NamedSharding(mesh, PartitionSpec("d"))
        columns = NamedSharding(mesh, PartitionSpec(None, "d"))
        has_replicas = case == "sharded state"

        def place(a: Any) -> Any:
            return rows if case != "logical split" and a.size >= 1 << 16 else same

        def hint(a: Any) -> Any:
            return a if has_replicas else jax.lax.with_sharding_constraint(a, columns)

        tx = optax.adam(1e-3)
        params = [np.asarray(p) for p in steps.initial(np.random.default_rng(0))]
        held = (params, tx.init(params))
        placed = jax.tree.map(place, held)
        self.held = jax.device_put(held, placed)
        self.batch = jax.device_put(_batch(total), rows if has_replicas else same)

        def step(held: Any, batch: Any) -> Any:
            params, slots = held
            loss, grads = jax.value_and_grad(_loss)(params, *batch, total, hint)
            changes, slots = tx.update(grads, slots, params)
            return (optax.apply_updates(params, changes), slots), loss

        self.step = jax.jit(step, donate_argnums=0, out_shardings=(placed, same))

    def __call__(self) -> Any:
        """Makes one step and returns its loss."""
        self.held, loss = self.step(self.held, self.batch)
        return loss

    def state(self) -> list[Any]:
        """Returns the arrays of weights and slots."""
        import jax

        return jax.tree.leaves(self.held)


class Ours:
    """Trains the same model under a strategy."""

    def __init__(self, case: str, devices: int, kind: str, total: int) -> None:
        import numpy as np
        import optax
        import steps

        import unisono as uni

        has_replicas = case == "sharded state"
        strategy: Any = (
            uni.distribute.MirroredStrategy(steps.names(devices, kind), state="sharded")
            if has_replicas
            else _logical(devices, "mirrored" if case == "logical split" else "sharded")
        )
        with strategy.scope():
            start = steps.initial(np.random.default_rng(0))
            self.weights = [uni.Variable(p) for p in start]
            self.optimizer = uni.optimizers.Optimizer(optax.adam(1e-3), self.weights)

        def hint(a: Any) -> Any:
            if has_replicas:
                return a
            return strategy.experimental_split_to_logical_devices(a, [1, devices])

        @uni.function
        def step(x: Any, y: Any) -> Any:
            def replica(x: Any, y: Any) -> Any:
                def loss_fn() -> Any:
                    params = [v.value() for v in self.weights]
                    return _loss(params, x, y, total, hint)

                loss, grads = uni.value_and_grad(loss_fn, self.weights)()
                self.optimizer.apply_gradients(zip(grads, self.weights, strict=True))
                return loss

            return strategy.reduce("SUM", strategy.run(replica, args=(x, y)), axis=None)

        data = uni.data.Dataset.from_tensor_slices(_batch(total)).batch(total)
        self.batch = next(iter(strategy.experimental_distribute_dataset(data)))
        self.step = step

    def __call__(self) -> Any:
        """Makes one step and returns its loss."""
        return self.step(*self.batch)

    def state(self) -> list[Any]:
        """Returns the arrays of weights and slots."""
        variables = [*self.weights, *self.optimizer.variables]
        # The stored arrays, as they are split; reading a variable would join its parts.
        return [v.state_cell.array for v in variables]


def _logical(devices: int, state: str) -> Any:
    """Returns a strategy with one replica that spans all devices."""
    import unisono as uni

    grid = uni.tpu.experimental.initialize_tpu_system()
    built = uni.tpu.experimental.DeviceAssignment.build(
        grid, computation_shape=list(grid.mesh_shape), num_replicas=1
    )
    assert built.num_cores_per_replica == devices
    return uni.distribute.TPUStrategy(experimental_device_assignment=built, state=state)


def _bytes(arrays: list[Any]) -> int:
    """Returns the bytes of arrays that are on the first device."""
    found = [s for a in arrays for s in a.addressable_shards]
    first = found[0].device
    return sum(s.data.nbytes for s in found if s.device == first)


def _burst(step: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    for i in range(STEPS):
        out = step()
        if i % BURST == BURST - 1:
            out.block_until_ready()
    out.block_until_ready()
    return (time.perf_counter() - begin) / STEPS


def measure(case: str, devices: int, kind: str, rounds: int) -> dict[str, Any]:
    """Returns the median times, their median ratio, and the bytes on a device."""
    import steps

    total = steps.PER_REPLICA * devices
    pair = [c(case, devices, kind, total) for c in (Hand, Ours)]
    losses = [float(step()) for step in pair]
    assert abs(losses[0] - losses[1]) < 1e-4 * abs(losses[0]), losses
    for step in pair:
        _burst(step)
    times: list[list[float]] = [[], []]
    for i in range(rounds):
        order = list(zip(pair, times, strict=True))
        for step, found in order if i % 2 else order[::-1]:
            found.append(_burst(step))
    hand, ours = times
    return {
        "hand_us": statistics.median(hand) * 1e6,
        "ours_us": statistics.median(ours) * 1e6,
        "ratio": statistics.median(o / h for o, h in zip(ours, hand, strict=True)),
        "best_ratio": min(ours) / min(hand),
        "bytes": [_bytes(step.state()) for step in pair],
    }


def _child(arguments: list[str]) -> Any:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True
    )
    done.check_returncode()
    return json.loads(done.stdout.strip().splitlines()[-1])


def _table(devices: list[int], kind: str, rounds: int) -> None:
    console = rich.console.Console(width=None if sys.stdout.isatty() else 110)
    table = rich.table.Table(title="Split over devices: unisono and jit by hand")
    for head in ("case", "n", "JAX µs", "ours µs", "ratio", "best", "reach",
                 "MB of state on a device"):  # fmt: skip
        table.add_column(head, justify="right", no_wrap=True)
    for case in CASES:
        for count in devices:
            console.print(f"[dim]{case}, {count} device(s) …")
            r = _child(["--measure", case, str(count), kind, str(rounds)])
            sizes = " / ".join(f"{b / 1e6:.2f}" for b in r["bytes"])
            table.add_row(
                case, str(count), f"{r['hand_us']:,.0f}", f"{r['ours_us']:,.0f}",
                f"{r['ratio']:.3f}", f"{r['best_ratio']:.3f}", REACH, sizes,
            )  # fmt: skip
    console.print(table)


def main() -> None:
    """Prints the table, or with ``--measure`` the figures of one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 2, 8])
    parser.add_argument("--kind", default="CPU", help="CPU or GPU")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        case, count, kind, rounds = arguments.measure
        if kind == "CPU":
            import unisono as uni

            uni.config.set_virtual_devices(int(count))
        print(json.dumps(measure(case, int(count), kind, int(rounds))))
    else:
        _table(arguments.devices, arguments.kind, 5 if arguments.quick else 15)


if __name__ == "__main__":
    main()
