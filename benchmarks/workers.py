"""Measures a step on two processes: unisono, hand-written JAX and PyTorch DDP.

usage: python benchmarks/workers.py

The step is that of an MLP with Adam. Unisono and hand-written JAX take turns in the
same two processes. PyTorch, if it is installed, runs before them in two other
processes. The cost of the guard is measured by itself, because one per cent of a step
is less than this comparison can resolve.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rich.console
import rich.table

WORKERS, PER_REPLICA, STEPS, ROUNDS = 2, 64, 40, 9
HERE = str(pathlib.Path(__file__).resolve())


def _timed(step: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    begin = time.perf_counter()
    for i in range(STEPS):
        out = step()
        if i % 8 == 7:
            wait(out)
    wait(out)
    return (time.perf_counter() - begin) / STEPS


def _data(worker: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(worker)
    x = rng.normal(size=(PER_REPLICA, 784)).astype(np.float32)
    return x, rng.integers(0, 10, PER_REPLICA).astype(np.int32)


def jax_pair() -> dict[str, list[float]]:
    """Returns the step times of JAX and unisono on this worker, by program."""
    import jax
    import optax
    import steps
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    import unisono as uni
    from unisono._src.workers import watchdog

    strategy = uni.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    mesh = Mesh(np.array(jax.devices()), ("d",))
    split, same = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
    total = PER_REPLICA * len(jax.devices())
    x, y = _data(worker)
    batch = tuple(jax.make_array_from_process_local_data(split, a) for a in (x, y))
    tx = optax.adam(1e-3)

    def body(state: Any, x: Any, y: Any) -> Any:
        params, slots = state
        loss, grads = jax.value_and_grad(steps.loss_of)(params, x, y, total)
        loss, grads = jax.lax.psum((loss, grads), "d")
        changes, slots = tx.update(grads, slots, params)
        return (optax.apply_updates(params, changes), slots), loss

    shaped = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=(P(), P("d"), P("d")),
        out_specs=(P(), P()),
        check_vma=False,
    )
    raw_step = jax.jit(shaped, donate_argnums=0)
    params = steps.initial(np.random.default_rng(0))
    held = jax.device_put((params, tx.init(params)), same)

    def raw() -> Any:
        nonlocal held
        held, loss = raw_step(held, *batch)
        return loss

    step = steps.fed_step(strategy, PER_REPLICA)

    def dataset_fn(context: Any) -> Any:
        return uni.data.Dataset.from_tensors((x, y)).repeat()

    parts = next(iter(strategy.distribute_datasets_from_function(dataset_fn)))

    def strict() -> Any:
        watching.is_strict = True
        loss = step(*parts)
        watching.is_strict = False
        return loss

    watching = watchdog.CURRENT.guard
    programs = {"jax": raw, "unisono": lambda: step(*parts), "unisono, strict": strict}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for i in range(ROUNDS + 2):
        for name in list(programs)[:: 1 if i % 2 else -1]:
            took = _timed(programs[name], lambda out: float(out))
            if i > 1:
                times[name].append(took)
    return {**times, **_guard_costs(watching)}


def _guard_costs(watching: Any) -> dict[str, list[float]]:
    """Returns the seconds that the guard works in each step and in each second."""
    count, label = 2000, ("step", [(PER_REPLICA, 784), (PER_REPLICA,)])
    begin = time.perf_counter()
    for _ in range(count):
        watching.enter(label)
    noting = (time.perf_counter() - begin) / count
    for _ in range(count):
        watching.leave()
    begin = time.thread_time()
    # The guard's thread does this once per tick; here it is called to be measured.
    for _ in range(100):
        watching.peers.exchange()
    looking = (time.thread_time() - begin) / 100 / watching.peers.limits.tick
    return {"noting": [noting], "looking": [looking]}


def torch_ddp(port: int) -> dict[str, list[float]]:
    """Returns the step times of PyTorch on this worker, over Gloo."""
    import torch
    import torch.distributed as dist

    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=index, world_size=WORKERS)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    )
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = (torch.from_numpy(a) for a in _data(index))
    y = y.long()

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    times = [_timed(step, float) for _ in range(ROUNDS + 2)][2:]
    dist.destroy_process_group()
    return {"torch": times}


def main() -> None:
    """Prints the table."""
    import socket

    import unisono as uni

    console = rich.console.Console()
    found: dict[str, list[float]] = {}
    if importlib.util.find_spec("torch") is not None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        console.print("[dim]PyTorch …")
        found |= uni.launch(f"{HERE}:torch_ddp", WORKERS, (port,), quiet=True)[0]
    console.print("[dim]JAX and unisono …")
    found |= uni.launch(f"{HERE}:jax_pair", WORKERS, quiet=True)[0]
    (noting,), (looking,) = found.pop("noting"), found.pop("looking")
    table = rich.table.Table(title="Two processes, MLP with Adam: one step")
    for head in ("program", "median ms", "to JAX", "reach"):
        table.add_column(head, justify="right")
    for name, times in found.items():
        ratios = [a / b for a, b in zip(times, found["jax"], strict=True)]
        table.add_row(
            name,
            f"{statistics.median(times) * 1e3:.2f}",
            f"{statistics.median(ratios):.3f}",
            "≤ 1.05, and torch's" if name == "unisono" else "",
        )
    console.print(table)
    console.print(
        f"the guard: {noting * 1e6:.1f} µs in each step and {looking * 1e3:.2f} ms of "
        f"processor time in each second: {noting / 0.01 + looking:.2%} of a step of "
        "10 ms (reach: ≤ 1 %)"
    )


if __name__ == "__main__":
    main()
