"""Runs the zoo and prints its table: `python -m tests.zoo.table [NAME...]`."""

import collections
import contextlib
import os
import sys
import time
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import unisono as uni
from tests.zoo import bugs, builders, delicate, right
from unisono._src.training import optimizers

ERROR = 1e-4


def check(program, replicas=(1, 2, 3, 8)):
    """Builds a program and checks it."""
    options = dict(program.options)
    names = ("count", "rows", "seed")
    data = {name: options.pop(name) for name in names if name in options}
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    step = program.build(strategy)
    batches = options.pop("batches", None) or builders.batches(**data)
    return uni.testing.check_parity(
        step, batches, replicas, strategy=strategy, **options
    )


@contextlib.contextmanager
def small_error():
    """Has one gradient of each optimizer be wrong by 1e-4 on several replicas.

    Yields:
        The optimizers that got gradients.
    """
    planted: list[Any] = []
    cls: Any = optimizers.Optimizer
    collect = cls._collect

    def wrong(self, pairs):
        first, *rest = collect(self, pairs)
        planted.append(self)
        if self.iterations.distribute_strategy.num_replicas_in_sync > 1:
            first = [g * (1 + ERROR) for g in first]
        return [first, *rest]

    cls._collect = wrong
    try:
        yield planted
    finally:
        cls._collect = collect


def _try_delicate(names, counts):
    for program in [*delicate.RIGHT, *delicate.WRONG]:
        is_right = program in delicate.RIGHT
        if names and program.name not in names:
            continue
        report = check(program)
        counts["delicate right" if is_right else "delicate wrong"] += 1
        counts["delicate alarms" if is_right else "delicate found"] += not report
        if bool(report) != is_right:
            print("ALARM" if is_right else "MISSED", program.name, report, flush=True)


def main(names):
    uni.config.set_virtual_devices(8)
    counts = collections.Counter()
    start = time.monotonic()
    for program in bugs.BUGS:
        if names and program.name not in names and "bugs" not in names:
            continue
        report = check(program)
        code = None if report else report.cause.code
        counts["bugs"] += 1
        counts["found"] += not report
        counts["named"] += code == program.cause
        mark = "found" if code == program.cause else "OTHER" if code else "MISSED"
        print(f"{mark:7} {program.name}: {program.cause}, told {code}", flush=True)
        if program.name in names:
            print(report)
    for program in [] if "bugs" in names else right.RIGHT:
        if names and program.name not in names:
            continue
        report = check(program)
        counts["right"] += 1
        counts["alarms"] += not report
        if not report or names:
            print("ALARM" if not report else "right", program.name, report, flush=True)
        with small_error() as planted:
            wrong = check(program)
        if not planted:
            continue
        counts["planted"] += 1
        counts["planted found"] += not wrong
        if wrong:
            print("NOT SEEN", program.name, wrong.floor, flush=True)
    if "bugs" not in names:
        _try_delicate(names, counts)
    seconds = round(time.monotonic() - start)
    print(dict(counts), f"{seconds} s")


if __name__ == "__main__":
    main(sys.argv[1:])
