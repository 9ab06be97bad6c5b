"""Calls go the way imports go: a lower layer never calls into a higher one.

Import-linter sees imports only; a callback handed down would escape it. Here real work
runs under a profiler. The user's function may re-enter at the top, so only a direct
call, from one function of the library to another, is judged; `nest`, whose trade is to
apply a function to every leaf, and Python's own protocols are not.
"""

import contextlib
import pathlib
import re
import sys
import tomllib

import jax.numpy as jnp
import pytest

import unisono as uni
from tests.architecture import sources

INTERNALS = str(sources.PACKAGE / "_src") + "/"


def layers():
    """Returns the layer of each module below `_src`, counted from the bottom."""
    text = (sources.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    (rows,) = (
        c["layers"] for c in contracts if c.get("containers") == ["unisono._src"]
    )
    return {
        name: height
        for height, row in enumerate(reversed(rows))
        for name in re.findall(r"\w+", row)
    }


@contextlib.contextmanager
def upward_calls():
    """Collects every direct call from a lower to a higher layer."""
    heights, found = layers(), set()

    def room_of(frame):
        path = frame.f_code.co_filename
        if not path.startswith(INTERNALS):
            return None
        return pathlib.PurePath(path.removeprefix(INTERNALS)).parts[0]

    def is_nest(frame):
        return frame.f_code.co_filename == INTERNALS + "foundation/nest.py"

    def is_protocol(frame):
        name = frame.f_code.co_name
        return name.startswith("__") and name.endswith("__")

    def notice(frame, event, _):
        if event != "call" or frame.f_back is None:
            return
        callee, caller = room_of(frame), room_of(frame.f_back)
        if callee is None or caller is None or is_protocol(frame):
            return
        if is_nest(frame.f_back):
            return
        if heights.get(callee, 0) > heights.get(caller, 0):
            found.add(
                f"{caller}.{frame.f_back.f_code.co_qualname} -> "
                f"{callee}.{frame.f_code.co_qualname}"
            )

    previous = sys.getprofile()
    sys.setprofile(notice)
    try:
        yield found
    finally:
        sys.setprofile(previous)


def work_through(strategy):
    """Runs, assigns, merges and reduces, once each."""
    with strategy.scope():
        mirrored = uni.Variable(
            jnp.zeros(2), name="m", aggregation=uni.VariableAggregation.MEAN
        )
        counter = uni.Variable(
            0.0,
            name="c",
            synchronization=uni.VariableSynchronization.ON_READ,
            aggregation=uni.VariableAggregation.SUM,
        )

    def merge_fn(strategy, value):
        return strategy.reduce("SUM", value, axis=None)

    def replica_fn(x):
        context = uni.distribute.get_replica_context()
        counter.assign_add(1.0)
        mirrored.assign_add(context.all_reduce("SUM", x))
        return context.merge_call(merge_fn, args=(x + mirrored,))

    values = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.full(2, float(context.replica_id_in_sync_group))
    )

    def step(values):
        return strategy.reduce("MEAN", strategy.run(replica_fn, args=(values,)), axis=0)

    step(values)
    uni.function(step)(values)
    mirrored.assign(mirrored + 1.0)
    return counter.numpy()


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_lower_layer_never_calls_a_higher_one(replicas):
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with upward_calls() as found:
        work_through(strategy)
    assert not found, (
        "expected calls to go down the layers of pyproject.toml only, received "
        f"{sorted(found)}; pass data instead of a callback, or move the function."
    )
