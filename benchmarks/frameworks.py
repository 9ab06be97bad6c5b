"""Measures a training step beside TensorFlow's and PyTorch's, on CPU.

usage: python benchmarks/frameworks.py [--tensorflow PYTHON] [--pytorch PYTHON]
           [--rounds N]

The same classifier (784-512-512-10, Adam, 64 examples per replica) is trained on one
replica and on two: by unisono's `MirroredStrategy`, by hand in JAX, by TensorFlow's
`MirroredStrategy`, and by PyTorch's `DistributedDataParallel` with two processes and
Gloo. Each runs in a process of its own on as many cores as there are replicas. They
take turns in each round, so that all see the same load of the machine, and the best
round of each counts. TensorFlow and PyTorch take part if an interpreter that has them
is named.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIZES = (784, 512, 512, 10)
PER_REPLICA, STEPS = 64, 40
REPLICAS = (1, 2)
NAMES = {"unisono": None, "JAX": None, "TensorFlow": "tensorflow", "PyTorch": "torch"}


def batch_of(replica: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns features and labels of one replica."""
    rng = np.random.default_rng(replica)
    x = rng.normal(size=(PER_REPLICA, SIZES[0])).astype(np.float32)
    return x, rng.integers(0, SIZES[-1], PER_REPLICA).astype(np.int32)


# ------------------------------------------------------------ one process of each


def jax_burst(replicas: int, is_ours: bool) -> Callable[[], float]:
    """Returns a function that makes steps in JAX and returns the seconds of one."""
    import run
    import steps

    run._start_devices(replicas)
    pair = steps.mlp_step(replicas, PER_REPLICA)
    step = pair.ours if is_ours else pair.raw
    return lambda: run._burst(step, STEPS)


def tensorflow_burst(replicas: int) -> Callable[[], float]:
    """Returns a function that makes steps in TensorFlow."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        layers = [tf.keras.layers.Dense(n, "relu") for n in SIZES[1:-1]]
        layers.append(tf.keras.layers.Dense(SIZES[-1]))
        model = tf.keras.Sequential([tf.keras.Input(SIZES[:1]), *layers])
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
    parts = strategy.experimental_distribute_values_from_function(
        lambda c: tuple(map(tf.constant, batch_of(c.replica_id_in_sync_group)))
    )

    @tf.function
    def step(x: Any, y: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x))
                loss = tf.reduce_sum(losses) / (PER_REPLICA * replicas)
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=(x, y)), axis=None)

    def burst() -> float:
        begin = time.perf_counter()
        for _ in range(STEPS):
            loss = step(*parts)
        loss.numpy()
        return (time.perf_counter() - begin) / STEPS

    return burst


def torch_burst(rank: int, replicas: int, port: int) -> Callable[[], float]:
    """Returns a function that makes steps in a process of PyTorch."""
    import torch

    layers: list[Any] = []
    for before, after in itertools.pairwise(SIZES):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    model: Any = torch.nn.Sequential(*layers[:-1])
    if replicas > 1:
        torch.distributed.init_process_group(
            "gloo", f"tcp://127.0.0.1:{port}", world_size=replicas, rank=rank
        )
        torch.set_num_threads(1)
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = map(torch.from_numpy, batch_of(rank))
    loss_of = torch.nn.CrossEntropyLoss()

    def burst() -> float:
        if replicas > 1:
            torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(model(x), y.long())
            loss.backward()
            optimizer.step()
        loss.item()
        return (time.perf_counter() - begin) / STEPS

    return burst


def serve(name: str, replicas: int, rank: int, port: int) -> None:
    """Makes a burst of steps for each line of standard input."""
    # A core per replica, before a framework counts them for its threads: threads of
    # PyTorch that wait for each other by spinning are slow on a busy machine.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:replicas])
    if name == "TensorFlow":
        burst = tensorflow_burst(replicas)
    elif name == "PyTorch":
        burst = torch_burst(rank, replicas, port)
    else:
        burst = jax_burst(replicas, name == "unisono")
    burst()
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(burst()), flush=True)
    os._exit(0)


# ------------------------------------------------------------------------- turns


class Contestant:
    """The processes that train with one framework on some replicas."""

    def __init__(self, python: str, name: str, replicas: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        count = replicas if name == "PyTorch" else 1
        environment = dict(os.environ)
        if NAMES[name]:  # The other interpreter has packages of its own.
            environment.pop("PYTHONPATH", None)
        given = [python, __file__, "--serve", name, str(replicas)]
        self._processes = [
            subprocess.Popen(
                [*given, str(rank), str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
            for rank in range(count)
        ]
        self._read(name)

    def _read(self, name: str) -> list[Any]:
        lines = [p.stdout.readline() for p in self._processes if p.stdout]
        if not all(lines):
            sys.exit(f"A process of {name} has ended.")
        return [json.loads(line) for line in lines]

    def time(self, name: str) -> float:
        """Returns the seconds of a step in one more burst."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return max(self._read(name))

    def stop(self) -> None:
        """Ends the processes."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def version(python: str, package: str) -> str:
    """Returns the version of a package of another interpreter."""
    asked = f"import {package}; print({package}.__version__)"
    done = subprocess.run(
        [python, "-c", asked], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def compare(
    pythons: dict[str, str], rounds: int
) -> dict[tuple[str, int], dict[str, float]]:
    """Returns seconds of a step in the best round, and its ratio to unisono's.

    Args:
        pythons: the interpreter for each framework that takes part.
        rounds: how often each of them gets a turn.
    """
    found = {}
    for replicas in REPLICAS:
        all_of = {n: Contestant(p, n, replicas) for n, p in pythons.items()}
        times: dict[str, list[float]] = {name: [] for name in all_of}
        for _ in range(rounds):
            for name, one in all_of.items():
                times[name].append(one.time(name))
        for name, one in all_of.items():
            one.stop()
            best = min(times[name])
            ratio = best / min(times["unisono"])
            found[name, replicas] = {"seconds": best, "ratio": ratio}
    return found


def main() -> None:
    """Compares, or is one of those that are compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensorflow", metavar="PYTHON")
    parser.add_argument("--pytorch", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        name, replicas, rank, port = given.serve
        serve(name, int(replicas), int(rank), int(port))
        return
    pythons = {"unisono": sys.executable, "JAX": sys.executable}
    pythons |= {"TensorFlow": given.tensorflow} if given.tensorflow else {}
    pythons |= {"PyTorch": given.pytorch} if given.pytorch else {}
    print("a step of the classifier, and its time divided by unisono's:")
    for (name, replicas), told in compare(pythons, given.rounds).items():
        print(
            f"  {name:10} {replicas} replica(s) {told['seconds'] * 1e3:7.2f} ms   "
            f"{told['ratio']:.2f}"
        )


if __name__ == "__main__":
    main()
