"""Flips single bits of mirrored variables on one device of one of several workers.

usage: python -m tests.multiprocess.bit_flips [--flips 1000] [--workers 3] [--devices 1]

A group of workers trains, and compares its copies every few steps, as with ``unisono
launch --check-replicas``. Before a random step one worker flips a random bit of a
random copy. A flip is missed if a worker does not find it at the next comparison, or if
one names another variable or, where most copies are right, another worker. After each
flip the group is set right and goes on: to start one for each would take hours.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np

import unisono as tf
from unisono._src.state import storage
from unisono._src.workers import copy_comparison, watchdog, worker_notes

ROOT = pathlib.Path(__file__).parents[2]
TYPES = ("float32", "bfloat16", "float16", "int32", "int8", "bool", "float8_e4m3fn")
SHAPES = ((), (3,), (5, 7), (2, 3, 11), (1000,))
SECONDS = 30.0


def make_variables(strategy):
    """Returns a variable of each type and shape, each with a name of its own."""
    with strategy.scope():
        return [
            tf.Variable(
                jnp.ones(shape, kind),
                name=f"{kind}_{i}",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for kind in TYPES
            for i, shape in enumerate(SHAPES)
        ]


def flip(variable, element, bit, device):
    """Flips a bit of the copy of a variable on one device of this process."""
    cell = variable.state_cell
    shards = cell.array.addressable_shards
    pieces = [np.array(shard.data) for shard in shards]
    bits = pieces[device].reshape(-1).view(np.uint8)
    size = pieces[device].dtype.itemsize
    bits[element * size + bit // 8] ^= np.uint8(1 << bit % 8)
    placed = [jax.device_put(p, s.device) for p, s in zip(pieces, shards, strict=True)]
    with storage.LOCK:
        cell.store(
            jax.make_array_from_single_device_arrays(cell.shape, cell.sharding, placed)
        )


def choose(rng, variables, workers, devices, every):
    """Returns a random flip: victim, device, variable, element, bit and step."""
    which = rng.randrange(len(variables))
    value = variables[which]
    count = int(np.prod(value.shape, dtype=int))
    # A truth value is one bit in a byte.
    bits = 1 if value.dtype == jnp.bool_ else 8 * value.dtype.itemsize
    return {
        "victim": rng.randrange(workers), "device": rng.randrange(devices),
        "variable": which, "element": rng.randrange(count),
        "bit": rng.randrange(bits), "at": rng.randrange(every),
    }  # fmt: skip


class Trials:
    """The flips of one worker, which goes on after each of them."""

    def __init__(self, topology, guard):
        self.guard = guard
        self.notes = worker_notes.NoteExchange(topology, "flips", SECONDS)
        self.is_paused = threading.Lock()
        look = guard._thread._look

        def look_unless_paused():
            with self.is_paused:
                look()

        guard._thread._look = look_unless_paused
        # No worker is in a step when an error is found, so none must be freed.
        guard.connections.shut = lambda: None

    def wait_for_verdict(self):
        until = time.monotonic() + SECONDS
        while self.guard.own.verdict is None and time.monotonic() < until:
            time.sleep(0.005)
        return self.guard.own.verdict

    def start_again(self, repair):
        """Sets the copies right and forgets what was found, on all workers at once."""
        guard = self.guard
        with self.is_paused:
            guard.own.verdict, guard.own.has_noticed = None, False
            self.notes.post("found")
            repair()
            old = guard.copies
            guard.copies = copy_comparison.CopyComparison(
                old._client, old._worker, old._pause
            )
            guard.own.copy_marks = []
            guard.own.publish()
            self.notes.post("forgotten")


def run_worker(given):
    """Runs one worker, and prints what it finds."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker, workers = strategy.cluster_resolver.task_id, given.workers
    variables = make_variables(strategy)
    with strategy.scope():
        mean = tf.VariableAggregation.MEAN
        steps = tf.Variable(0.0, name="steps", aggregation=mean)
    every = int(os.environ["UNISONO_CHECK_REPLICAS"])
    guard = watchdog.CURRENT.guard
    trials = Trials(variables[0].state_cell.topology, guard)
    rng = random.Random(given.seed)

    @tf.function
    def step():
        def replica():
            total = tf.distribute.get_replica_context().all_reduce(
                "SUM", jnp.float32(1)
            )
            steps.assign_add(total)
            return total

        return strategy.run(replica)

    step()
    for number in range(given.flips):
        chosen = choose(rng, variables, workers, given.devices, every)
        place = [chosen[k] for k in ("variable", "element", "bit", "device")]

        def change(is_victim=worker == chosen["victim"], place=place):
            if is_victim:
                flip(variables[place[0]], *place[1:])

        # The guard would raise in the middle of the steps, if it looked meanwhile.
        with trials.is_paused:
            for i in range(chosen["at"] + every):
                if i == chosen["at"]:
                    begun = guard.step
                    change()
                out = step()
            jax.block_until_ready(strategy.experimental_local_results(out))
        found = trials.wait_for_verdict()
        wrong = judge(found, variables[place[0]].name, chosen, begun, every, given)
        print("TOLD", json.dumps([number, worker, wrong, chosen]), flush=True)
        trials.start_again(change)


def judge(found, name, chosen, begun, every, given):
    """Returns what is wrong with an error; an empty text if nothing is."""
    if found is None:
        return "not found"
    text = str(found)
    if f"'{name}'" not in text and f"'{name.partition(':')[0]}'" not in text:
        return f"another variable than {name}: {text}"
    if not begun < found.step <= begun + every:
        return f"step {found.step}, flipped after {begun}"
    is_clear = given.workers * given.devices > 2
    if found.worker != (chosen["victim"] if is_clear else None):
        return f"worker {found.worker} in place of {chosen['victim']}: {text}"
    return ""


def run(flips, workers=3, devices=1, every=10, seed=0):
    """Runs a group; returns how many flips every worker found, and what was wrong."""
    command = [sys.executable, "-m", "unisono", "launch", "-n", str(workers)]
    command += ["-d", str(devices), "--plain", "--check-replicas", str(every)]
    numbers = ["--flips", flips, "--workers", workers, "--devices", devices]
    done = subprocess.run(
        [*command, __file__, "--worker", *map(str, [*numbers, "--seed", seed])],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [x.split("TOLD ", 1)[1] for x in done.stdout.splitlines() if "TOLD " in x]
    told = [json.loads(line) for line in lines]
    found = {n: [w for m, _, w, _ in told if m == n] for n in range(flips)}
    right = sum(len(x) == workers and not any(x) for x in found.values())
    wrong = [x for x in told if x[2]]
    if len(told) < flips * workers:
        wrong.append(done.stdout[-3000:] + done.stderr[-3000:])
    return right, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"flips": 1000, "workers": 3, "devices": 1, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--worker", action="store_true")
    given = parser.parse_args()
    if given.worker:
        run_worker(given)
        return
    begin = time.monotonic()
    right, wrong = run(
        given.flips, given.workers, given.devices, given.every, given.seed
    )
    for line in wrong[:20]:
        print(line)
    took = time.monotonic() - begin
    print(f"{given.flips} flips, {right} found by every worker, {took:.0f} s")
    sys.exit(right != given.flips)


if __name__ == "__main__":
    main()
