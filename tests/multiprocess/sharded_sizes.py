"""Random groups of workers with split state, compared with whole state in one process.

usage: python -m tests.multiprocess.sharded_sizes [--runs 10] [--seed N]

A run draws one to four workers, their numbers of devices, and the options of the
strategy. The workers train, change variables eagerly and save; another random group
restores. Each must give the numbers of a `MirroredStrategy` of as many replicas.
"""

import argparse
import json
import os
import random
import tempfile

import numpy as np

import unisono
from tests.multiprocess import harness, sharded_scenarios

WIDTH = 1 << 16


def draw(chance):
    """Returns the numbers of devices of a group, and the options of its strategy."""
    counts = [chance.randint(1, 2) for _ in range(chance.randint(1, 4))]
    options = {"state": "sharded", "shard_above": chance.choice([8, 32, 100])}
    options["gather"] = chance.choice(["use", "step"])
    options["shard_over"] = chance.choice(["all", "all", "worker"])
    if chance.random() < 0.3:
        options["shard_rules"] = {"first": chance.choice([0, 1, None])}
    if options.get("shard_rules") == {"first": 0} and sum(counts) % 2:
        del options["shard_rules"]  # Eight rows and an odd number cannot be cut.
    return counts, options


def start(counts, options):
    text = json.dumps(options)
    folder = tempfile.mkdtemp()
    return harness.Group(folder, len(counts), counts, TEST_OPTIONS=text)


def check(told, wanted, what):
    for found in told:
        pairs = zip(found, wanted, strict=True)
        is_close = [np.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in pairs]
        assert all(is_close), (what, is_close)


def run(chance):
    (counts, options), (others, new) = draw(chance), draw(chance)
    print(counts, options, "then", others, new, flush=True)
    names = [f"CPU:{i}" for i in range(sum(counts))]
    whole, is_even = unisono.distribute.MirroredStrategy(names), len(set(counts)) == 1
    call = "sharded_scenarios"
    with tempfile.TemporaryDirectory() as folder, start(counts, options) as group:
        told = group.call(f"{call}.train_in_parts")
        losses, values = sharded_scenarios.train_in_parts(whole, 0)
        check([[t[0]] for t in told], [losses], "losses")
        check([t[1] for t in told], values, "weights")
        if "shard_rules" not in options:
            told = group.call(f"{call}.changes", is_even=is_even)
            check(told, sharded_scenarios.changes(whole, 0, is_even), "changes")
        directory = f"{folder}/{len(counts)}"
        saved = group.call(f"{call}.save_in_parts", directory=directory, width=WIDTH)
        path = saved[0][0]
        names = [f"CPU:{i}" for i in range(sum(others))]
        whole = unisono.distribute.MirroredStrategy(names)
        wanted = sharded_scenarios.restore_in_parts(whole, 0, path, WIDTH)
        with start(others, new) as second:
            told = second.call(f"{call}.restore_in_parts", path=path, width=WIDTH)
        check(told, wanted, "restored")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    # Before JAX starts: one process has as many replicas as any group.
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    for i in range(given.runs):
        print(f"seed {given.seed + i}: ", end="")
        run(random.Random(given.seed + i))
    print("All runs gave the numbers of whole state.")


if __name__ == "__main__":
    main()
