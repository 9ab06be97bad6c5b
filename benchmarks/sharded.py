"""Measures what a step of a model in parts holds, gathers and takes.

usage: python benchmarks/sharded.py [--quick] [--devices 2 8 64] [--size 1024]
           [--rows 8]
           [--programs variables tape keras fit flax loop checkpoint flax_loop]

The model is a number of equal layers of one matrix, trained with SGD. Each program is
written for a strategy, and measured with mirrored state, with sharded state that
gathers where weights are used, and with sharded state that gathers before the step.
Beside it stand two programs by hand: `jit` with a `NamedSharding` for each matrix, and
`shard_map` that gathers in the function of a layer, under `jax.checkpoint`. All
programs of a row take turns in one process. Memory is counted in layers; what it takes
to make a program and compile it, in seconds of CPU. A row is printed when it is there;
``--quick`` takes eight devices and one round. With few rows for each replica `jit` by
hand exchanges activations in place of gradients, which are larger then.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

PROGRAMS = (
    "variables", "tape", "keras", "fit", "flax", "loop", "checkpoint", "flax_loop",
)  # fmt: skip
LOOPS = ("loop", "checkpoint", "flax_loop")
LAYERS = 8
# The rows of a replica, in the environment of the processes that measure.
_ROWS = "SHARDED_ROWS"
ROWS = int(os.environ.get(_ROWS, "8"))
RATE = 0.08 / ROWS
LIBRARIES = {
    "keras": "keras",
    "fit": "keras",
    "flax": "flax.nnx",
    "flax_loop": "flax.nnx",
}
# The first is what arithmetic is compared with.
OURS = ("before the step", "mirrored", "sharded")
HAND = ("jit by hand", "shard_map by hand")


def _start(size: int) -> tuple[Any, Any]:
    """Returns the matrices of all layers, and the examples of one replica."""
    import numpy as np

    rng = np.random.default_rng(0)
    stack = rng.normal(size=(LAYERS, size, size)) / size**0.5
    return stack.astype(np.float32), rng.normal(size=(ROWS, size)).astype(np.float32)


def _make_strategy(kind: str, devices: int) -> Any:
    import unisono as uni

    options: dict[str, Any] = {} if kind == "mirrored" else {"state": "sharded"}
    if kind == "before the step":
        options["gather"] = "step"
    names = [f"CPU:{i}" for i in range(devices)]
    return uni.distribute.MirroredStrategy(names, **options)


def _make_model(stack: Any) -> Any:
    import keras

    size = stack.shape[1]
    dense = functools.partial(
        keras.layers.Dense, size, activation="tanh", use_bias=False
    )
    model = keras.Sequential([keras.layers.Input((size,)), *(dense() for _ in stack)])
    model.set_weights(list(stack))
    return model


class Ours:
    """Trains under a strategy, with one kind of state."""

    def __init__(self, program: str, kind: str, devices: int, size: int) -> None:
        import unisono as uni

        self.strategy = _make_strategy(kind, devices)
        self.stack, rows = _start(size)
        with self.strategy.scope():
            replica = getattr(self, f"_{program}")()
        self.batch = self.strategy.experimental_distribute_values_from_function(
            lambda _: rows
        )

        @uni.function
        def step(x: Any) -> Any:
            found = self.strategy.run(replica, args=(x,))
            return self.strategy.reduce("SUM", found, axis=None)

        self.step = step

    def __call__(self) -> Any:
        """Makes one step and returns its loss."""
        return self.step(self.batch)

    def compile(self) -> Any:
        """Returns the compiled program."""
        return self.step.lowered(self.batch).compile()

    def _mean(self, y: Any) -> Any:
        import jax.numpy as jnp

        return jnp.sum(y**2) / self.strategy.num_replicas_in_sync

    def _variables(self, use_tape: bool = False) -> Callable[[Any], Any]:
        import jax.numpy as jnp
        import optax

        import unisono as uni

        weights = [uni.Variable(w) for w in self.stack]
        optimizer = uni.optimizers.Optimizer(optax.sgd(RATE), weights)

        def loss(x: Any) -> Any:
            for w in weights:
                x = jnp.tanh(x @ w)
            return self._mean(x)

        def replica(x: Any) -> Any:
            if use_tape:
                with uni.GradientTape() as tape:
                    value = loss(x)
                gradients = tape.gradient(value, weights)
            else:
                value, gradients = uni.value_and_grad(loss, weights)(x)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return value

        return replica

    def _tape(self) -> Callable[[Any], Any]:
        return self._variables(use_tape=True)

    def _loop(self, wrap: Callable[..., Any] = lambda f: f) -> Callable[[Any], Any]:
        import jax
        import jax.numpy as jnp
        import optax

        import unisono as uni

        stack = uni.Variable(self.stack)
        optimizer = uni.optimizers.Optimizer(optax.sgd(RATE), [stack])
        layer = wrap(lambda x, w: (jnp.tanh(x @ w), None))

        def replica(x: Any) -> Any:
            def loss() -> Any:
                return self._mean(jax.lax.scan(layer, x, stack.value())[0])

            value, gradients = uni.value_and_grad(loss, [stack])()
            optimizer.apply_gradients(zip(gradients, [stack], strict=True))
            return value

        return replica

    def _checkpoint(self) -> Callable[[Any], Any]:
        import jax

        return self._loop(jax.checkpoint)

    def _keras(self) -> Callable[[Any], Any]:
        import keras

        import unisono as uni

        model = _make_model(self.stack)
        optimizer = keras.optimizers.SGD(RATE)
        optimizer.build(model.trainable_variables)

        def replica(x: Any) -> Any:
            weights = model.trainable_variables
            with uni.GradientTape() as tape:
                value = self._mean(model(x, training=True))
            gradients = tape.gradient(value, weights)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return value

        return replica

    def _flax(self) -> Callable[[Any], Any]:
        import jax.numpy as jnp
        from flax import nnx

        size = self.stack.shape[1]
        rngs = nnx.Rngs(0)
        layers = [nnx.Linear(size, size, use_bias=False, rngs=rngs) for _ in self.stack]
        for layer, w in zip(layers, self.stack, strict=True):
            layer.kernel.set_value(jnp.asarray(w))
        model = nnx.Sequential(*(f for layer in layers for f in (layer, jnp.tanh)))
        return self._train_flax(model, lambda m, x: m(x))

    def _flax_loop(self) -> Callable[[Any], Any]:
        import jax.numpy as jnp
        from flax import nnx

        size = self.stack.shape[1]

        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap
        def make(rngs: Any) -> Any:
            return nnx.Linear(size, size, use_bias=False, rngs=rngs)

        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def forward(x: Any, layer: Any) -> Any:
            return jnp.tanh(layer(x))

        model = make(nnx.Rngs(0))
        model.kernel.set_value(jnp.asarray(self.stack))
        return self._train_flax(model, lambda m, x: forward(x, m))

    def _train_flax(
        self, model: Any, forward: Callable[[Any, Any], Any]
    ) -> Callable[[Any], Any]:
        import optax
        from flax import nnx

        optimizer = nnx.Optimizer(model, optax.sgd(RATE), wrt=nnx.Param)

        def replica(x: Any) -> Any:
            value, gradients = nnx.value_and_grad(lambda m: self._mean(forward(m, x)))(
                model
            )
            optimizer.update(model, gradients)
            return value

        return replica


class Fit:
    """Trains a Keras model by Keras' own step, that of `fit`."""

    def __init__(self, program: str, kind: str, devices: int, size: int) -> None:
        import jax
        import keras
        import numpy as np
        from keras.src.backend.jax import trainer

        stack, rows = _start(size)
        self.rows = np.tile(rows, (devices, 1))
        self.jitted: list[Any] = []
        outer: Any = trainer.jit

        def jit(fn: Any, **options: Any) -> Any:
            jitted = outer(fn, **options)

            def call(*args: Any) -> Any:
                # What a step takes is gone after it.
                shapes = jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(
                        x.shape, x.dtype, sharding=x.sharding
                    ),
                    args,
                )
                self.jitted[:] = [jitted, shapes]
                return jitted(*args)

            return call

        begin = time.process_time()
        trainer.jit = jit
        try:
            with _make_strategy(kind, devices).scope():
                self.model = _make_model(stack)
                # The mean of this is the loss of the other programs.
                self.model.compile(
                    keras.optimizers.SGD(RATE),
                    lambda _, y: ROWS * keras.ops.sum(y**2, -1),
                )
            self()
        finally:
            trainer.jit = outer
        self.first = time.process_time() - begin

    def __call__(self) -> Any:
        """Makes one step and returns its loss."""
        import jax.numpy as jnp

        return jnp.asarray(self.model.train_on_batch(self.rows, self.rows))

    def compile(self) -> Any:
        """Returns the compiled program."""
        jitted, shapes = self.jitted
        return jitted.lower(*shapes).compile()


class Hand:
    """Trains as a JAX user writes it."""

    def __init__(self, program: str, kind: str, devices: int, size: int) -> None:
        import jax
        import jax.numpy as jnp
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        found = np.array(jax.devices("cpu")[:devices], dtype=object)
        mesh, axis = Mesh(found, ("d",)), "d"
        self._is_stacked = program in LOOPS
        stack, rows = _start(size)
        cut = PartitionSpec(None, axis) if self._is_stacked else PartitionSpec(axis)
        place = NamedSharding(mesh, cut)
        given = [stack] if self._is_stacked else list(stack)
        self.weights = [jax.device_put(w, place) for w in given]
        batch = NamedSharding(mesh, PartitionSpec(axis))
        self.batch = jax.device_put(np.tile(rows, (devices, 1)), batch)
        is_mapped = kind == "shard_map by hand"

        def layer(x: Any, w: Any) -> tuple[Any, None]:
            if is_mapped:
                w = jax.lax.all_gather(w, axis, axis=0, tiled=True)
            return jnp.tanh(x @ w), None

        if is_mapped or program == "checkpoint":
            layer = jax.checkpoint(layer)

        def loss(weights: list[Any], x: Any) -> Any:
            if self._is_stacked:
                x, _ = jax.lax.scan(layer, x, weights[0])
            else:
                for w in weights:
                    x, _ = layer(x, w)
            return jnp.sum(x**2) / devices

        def step(weights: list[Any], x: Any) -> Any:
            value, gradients = jax.value_and_grad(loss)(weights, x)
            # The gradient of a gather is a sum that is cut.
            pairs = zip(weights, gradients, strict=True)
            new = [w - RATE * g for w, g in pairs]
            return new, jax.lax.psum(value, axis) if is_mapped else value

        if is_mapped:
            step = jax.shard_map(
                step,
                mesh=mesh,
                in_specs=(cut, PartitionSpec(axis)),
                out_specs=(cut, PartitionSpec()),
                check_vma=False,
            )
        out = ([place] * len(given), NamedSharding(mesh, PartitionSpec()))
        self.step = jax.jit(step, donate_argnums=0, out_shardings=out)

    def __call__(self) -> Any:
        """Makes one step and returns its loss."""
        self.weights, value = self.step(self.weights, self.batch)
        return value

    def compile(self) -> Any:
        """Returns the compiled program."""
        return self.step.lower(self.weights, self.batch).compile()


def _count(text: str, name: str) -> int:
    """Returns how many arrays the operations of a name give."""
    lines = re.findall(rf"= (\(.*?\)|\S+) {name}(?:-start)?\(", text)
    return sum(len(re.findall(r"\w+\[[\d,]*\]", line)) for line in lines)


def _burst(step: Callable[[], Any], steps: int) -> float:
    begin = time.perf_counter()
    for _ in range(steps):
        # Each is waited for: see docs/decisions/0005 for hand-written JAX.
        step().block_until_ready()
    return (time.perf_counter() - begin) / steps


def measure(
    program: str, devices: int, size: int, rounds: int
) -> Iterator[dict[str, Any]]:
    """Yields the figures of all ways to run a program.

    Memory and counts come first, then the times of all.

    Args:
        program: the program.
        devices: how many devices there are.
        size: the rows and columns of a matrix.
        rounds: how often each way is timed; 0 for not at all.
    """
    import jax

    layer = size * size * 4
    made = {}
    # What makes variables must be loaded before the scope.
    if program in LIBRARIES:
        importlib.import_module(LIBRARIES[program])
    for kind in (*OURS, *HAND):
        make: Any = Hand if kind in HAND else Fit if program == "fit" else Ours
        begin = time.process_time()
        made[kind] = step = make(program, kind, devices, size)
        compiled = step.compile()
        # Keras' step has run, and is compiled once more to be looked at.
        first = getattr(step, "first", time.process_time() - begin)
        memory, text = compiled.memory_analysis(), compiled.as_text()
        held = memory.temp_size_in_bytes / layer
        yield {
            "kind": kind,
            "held": held,
            "with arguments": held + memory.argument_size_in_bytes / layer,
            "gathers": _count(text, "all-gather"),
            "scatters": _count(text, "reduce-scatter"),
            "flops": compiled.cost_analysis()["flops"],
            "first": first,
        }
        jax.clear_caches()
    if not rounds:
        return
    # Keras' step has been made once already.
    skip = program == "fit"
    losses = {
        kind: [float(step()) for _ in range(3 if kind in HAND or not skip else 2)]
        for kind, step in made.items()
    }
    times: dict[str, list[float]] = {kind: [] for kind in made}
    for i in range(rounds):
        order = list(made.items())
        for kind, step in order if i % 2 else order[::-1]:
            times[kind].append(_burst(step, 5 if rounds > 1 else 2))
    for kind, found in times.items():
        yield {
            "kind": kind,
            "ms": statistics.median(found) * 1e3,
            "loss": losses[kind][-1],
            "same": losses[kind] == losses["mirrored"],
        }


def _child(arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Yields what a process of its own measures, when it is there."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if child.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed.")


# What is printed: the head of a column, its width, and the figure.
_COLUMNS: tuple[tuple[str, int, Callable[[dict[str, Any]], str]], ...] = (
    ("program", 11, lambda r: r["program"]),
    ("n", 3, lambda r: r["n"]),
    ("state", 18, lambda r: r["kind"]),
    ("held", 6, lambda r: f"{r['held']:.1f}"),
    ("with arguments", 15, lambda r: f"{r['with arguments']:.1f}"),
    ("gathers", 8, lambda r: str(r["gathers"])),
    ("scatters", 9, lambda r: str(r["scatters"])),
    ("arithmetic", 11, lambda r: f"{r['flops'] / r['whole']:.2f}"),
    ("first CPU s", 12, lambda r: f"{r['first']:.2f}"),
)


def _print(text: str) -> None:
    print(text, flush=True)


def _table(programs: list[str], devices: list[int], size: int, rounds: int) -> None:
    _print(f"{LAYERS} layers of {size}², memory in layers")
    _print(" ".join(head.rjust(width) for head, width, _ in _COLUMNS))
    for program in programs:
        for count in devices:
            # A virtual device more than there are cores takes a turn of its own.
            times = rounds if count <= 8 else 0
            given = ["--measure", program, str(count), str(size), str(times)]
            whole = None
            for row in _child(given):
                row |= {"program": program, "n": str(count)}
                if "ms" in row:
                    same = "" if row["kind"] == "mirrored" or not row["same"] else " ="
                    kind = row["kind"].rjust(34)
                    _print(f"{kind}: {row['ms']:.1f} ms, loss {row['loss']:.4f}{same}")
                    continue
                whole = whole or row["flops"]
                row["whole"] = whole
                _print(" ".join(f(row).rjust(width) for _, width, f in _COLUMNS))
    _print("= after a loss: bit for bit those of mirrored state, in all steps.")


def main() -> None:
    """Prints the table, or with ``--measure`` the figures of one program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="eight devices, one round")
    parser.add_argument("--devices", nargs="+", type=int)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=ROWS, help="of each replica")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        os.environ.setdefault("KERAS_BACKEND", "jax")
        import unisono as uni

        program, count, size, rounds = arguments.measure
        uni.config.set_virtual_devices(int(count))
        for row in measure(program, int(count), int(size), int(rounds)):
            _print(json.dumps(row))
    else:
        os.environ[_ROWS] = str(arguments.rows)
        rounds = 1 if arguments.quick else 11
        devices = arguments.devices or ([8] if arguments.quick else [2, 8, 64])
        _table(list(arguments.programs), devices, arguments.size, rounds)


if __name__ == "__main__":
    main()
