"""Random programs of two workers that differ in one thing, or in none.

usage: python -m tests.multiprocess.worker_differences [--runs 300] [--first 0]

Each run has random functions (sizes and types of variables, numbers of collectives), a
random order of steps and reads, and one random difference on worker 1. A run is wrong
if a worker reads a value after the difference, if a worker is aborted or hangs, or if
workers that do not differ get another value than NumPy.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

import unisono as tf

KINDS = (
    "none",
    "order",
    "argument",
    "capture",
    "plain variable",
    "own result",
    "extra step",
    "constant",
    "data",
    "draw",
)
SIZES = (1, 4, 33, 1000, 40_000)
SECONDS = 150.0
ROOT = pathlib.Path(__file__).parents[2]


def plan(seed):
    """Returns a random program: its functions, its steps and its difference."""
    rng = random.Random(seed)
    functions = [
        {
            "size": rng.choice(SIZES),
            "type": rng.choice(["float32", "float32", "bfloat16", "int32"]),
            "sums": rng.choice([0, 1, 1, 2, 5]),
            "factor": k + 1,
            "gathers": rng.random() < 0.2,
        }
        for k in range(rng.choice([2, 3]))
    ]
    count = rng.randint(4, 9)
    # Every function is known before workers differ: new ones are compared anyway.
    steps = list(range(len(functions)))
    steps += [rng.randrange(len(functions)) for _ in range(count)]
    kind = rng.choice(KINDS)
    at = rng.randrange(len(functions), len(steps) - 2)
    if kind == "order":
        steps[at], steps[at + 1] = 0, 1
    reads = [i for i in range(len(steps)) if rng.random() < 0.3]
    if kind not in ("none",):
        reads = [i for i in reads if i < at or rng.random() < 0.3]
    return {
        "functions": functions, "steps": steps, "kind": kind, "at": at,
        "reads": reads, "how": rng.choice(["asarray", "float", "item", "device_get"]),
    }  # fmt: skip


def expected(found):
    """Returns the variables that NumPy computes, by function."""
    totals = [0] * len(found["functions"])
    for step in found["steps"]:
        f = found["functions"][step]
        # The rows of two replicas are 1 and 2.
        totals[step] += f["factor"] * (3 * max(f["sums"], 1))
    return totals


def make_step(strategy, found, f, differs):
    """Returns a random function, its variable, and a variable of no strategy."""
    kind, context = found["kind"], tf.distribute.get_replica_context
    with strategy.scope():
        v = tf.Variable(jnp.zeros(f["size"], f["type"]))
    captured = jnp.full((2,), 2 if differs and kind == "capture" else 1)
    plain = tf.Variable(jnp.asarray(1))
    constant = 2 if differs and kind == "constant" else 1
    is_first = f is found["functions"][0]

    def replica(x):
        part = jnp.full(f["size"], f["factor"]).astype(v.dtype) * x[0].astype(v.dtype)
        if f["sums"] == 0:
            return part
        return sum(context().all_reduce("SUM", [part] * f["sums"]))

    # How each kind of difference reaches the variable.
    changes = {
        "argument": lambda total, x, rate: total * rate.astype(v.dtype),
        "capture": lambda total, x, rate: total * captured[0].astype(v.dtype),
        "plain variable": lambda total, x, rate: (
            total * plain.read_value().astype(v.dtype)
        ),
        "own result": lambda total, x, rate: total + own_part(x, rate - 1),
        # Without a seed, and nevertheless the same on all workers.
        "draw": lambda total, x, rate: (
            total + (100 * tf.random.uniform([])).astype(v.dtype)
        ),
    }

    def own_part(x, rate):
        own = strategy.experimental_local_results(x)[0][0]
        return (own * rate * is_first).astype(v.dtype)

    @tf.function
    def step(x, rate):
        out = strategy.run(replica, args=(x,))
        total = strategy.reduce("MEAN" if f["sums"] else "SUM", out, axis=None)
        total = total.astype(v.dtype) * constant
        if f["gathers"]:
            total = total + 0 * jnp.sum(strategy.gather(x, 0)).astype(v.dtype)
        if kind in changes:
            total = changes[kind](total, x, rate)
        v.assign_add(total)
        return total

    return v, plain, step


# The ways in which programs read a number.
READS = {
    "asarray": lambda v: np.asarray(v.read_value()).reshape(-1)[0],
    "float": lambda v: float(v.read_value().reshape(-1)[0]),
    "item": lambda v: v.read_value().reshape(-1)[0].item(),
    "device_get": lambda v: jax.device_get(v.read_value()).reshape(-1)[0],
}


def run_worker(seed):
    """Runs one worker, and tells in lines of JSON what it reads or raises."""
    found = plan(seed)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    differs, at, kind = worker == 1, found["at"], found["kind"]

    def tell(**what):
        print("TOLD " + json.dumps({"worker": worker, **what}), flush=True)

    made = [make_step(strategy, found, f, differs) for f in found["functions"]]
    numbers = np.float32([2, 1] if differs and kind == "data" else [1, 2])
    read = READS[found["how"]]
    try:
        rows = tf.data.Dataset.from_tensor_slices(numbers).batch(2)
        x = next(iter(strategy.experimental_distribute_dataset(rows)))
        if kind == "draw" and not differs:
            # The chief draws alone, which must not matter.
            tf.function(lambda: tf.random.uniform([]))()
        for i, k in enumerate(list_steps(found, worker)):
            v, plain, step = made[k]
            is_here = differs and i == at
            if is_here and kind == "plain variable":
                plain.assign(2)
            rate = 2 if is_here and kind in ("argument", "own result") else 1
            step(x, jnp.asarray(rate))
            if i in found["reads"]:
                tell(steps=i + 1, read=float(read(v)))
        tell(steps=i + 1, end=[float(read(v)) for v, _, _ in made])
    except Exception as error:
        tell(error=type(error).__name__, text=str(error)[:300])
    finally:
        tell(finished=True)


def list_steps(found, worker):
    """Returns the functions that a worker calls, in order."""
    steps, at = list(found["steps"]), found["at"]
    if worker == 1 and found["kind"] == "order":
        steps[at], steps[at + 1] = steps[at + 1], steps[at]
    if worker == 1 and found["kind"] == "extra step":
        steps.insert(at, steps[at])
    return steps


def count_right_steps(found):
    """Returns how many steps are the same on both workers."""
    kind, at = found["kind"], found["at"]
    if kind in ("constant", "capture", "data"):
        # It is found before the first step.
        return 0
    if kind in ("order", "extra step"):
        pairs = enumerate(zip(list_steps(found, 0), list_steps(found, 1), strict=False))
        return next((i for i, (a, b) in pairs if a != b), len(found["steps"]))
    return None if kind in ("none", "draw") else at


def judge(found, told, codes):
    """Returns what is wrong with a run; an empty text if nothing is."""
    by_worker = collections.defaultdict(list)
    for line in told:
        by_worker[line["worker"]].append(line)
    problems, right = [], count_right_steps(found)
    for worker in (0, 1):
        lines = by_worker[worker]
        if not any(line.get("finished") for line in lines):
            problems.append(f"worker {worker} did not come to its end ({codes})")
        errors = [line["error"] for line in lines if "error" in line]
        if right is not None:
            late = [n for n in lines if n.get("steps", 0) > right]
            if late:
                problems.append(f"worker {worker} has read {late[0]}")
            if errors and not errors[0].startswith("Worker"):
                problems.append(f"worker {worker} raised {errors[0]}")
        else:
            end = [line["end"] for line in lines if "end" in line]
            wanted = [expected(found)]
            if found["kind"] == "draw":
                wanted = [line["end"] for line in by_worker[0] if "end" in line]
            if not end or end != wanted:
                problems.append(f"worker {worker} has {end or errors}")
    return "; ".join(problems)


def run(seed):
    """Runs a random program on two workers; returns what is wrong with it."""
    found = plan(seed)
    with tempfile.TemporaryDirectory() as directory:
        log = pathlib.Path(directory, "log")
        command = [sys.executable, "-m", "unisono", "launch", "-n", "2", "--plain"]
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [*command, __file__, "--worker", str(seed)],
                stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True,
            )  # fmt: skip
            try:
                code = f"status {process.wait(SECONDS)}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = "it hung"
        text = log.read_text(errors="replace")
    lines = [line.split("TOLD ", 1)[1] for line in text.splitlines() if "TOLD " in line]
    told = [json.loads(line) for line in lines]
    wrong = judge(found, told, code)
    return wrong and f"seed {seed} ({found['kind']}): {wrong}\n{text[-3000:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--beside", type=int, default=2)
    parser.add_argument("--worker", type=int)
    given = parser.parse_args()
    if given.worker is not None:
        run_worker(given.worker)
        return
    begin, failed = time.monotonic(), 0
    seeds = range(given.first, given.first + given.runs)
    with concurrent.futures.ThreadPoolExecutor(given.beside) as pool:
        for seed, wrong in zip(seeds, pool.map(run, seeds), strict=True):
            failed += bool(wrong)
            print(wrong or f"seed {seed}: right", flush=True)
    took = time.monotonic() - begin
    print(f"{given.runs} runs, {failed} wrong, {took:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
