"""Which variables are cut, along which axis, and what a program can say about it."""

import logging
import types

import numpy as np
import optax
import pytest

import unisono as tf
from tests import machine
from unisono._src.machines import shard_plan
from unisono._src.machines.partition import Split
from unisono._src.machines.shard_plan import ShardPlan
from unisono._src.machines.topology import AXIS, Topology


def devices(count):
    return Topology.of(machine.names(count))


def sharded(count, **options):
    names = machine.names(count)
    return tf.distribute.MirroredStrategy(
        names, state="sharded", shard_above=8, **options
    )


def made(strategy, **shapes):
    with strategy.scope():
        return [tf.Variable(np.ones(s, np.float32), name=n) for n, s in shapes.items()]


def axis_of(variable):
    split = variable.state_cell.split
    return split and split.axis


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((8,), 0),
        ((3, 4), 1),
        ((4, 3), 0),
        ((4, 8), 1),
        ((8, 8), 0),
        # The first of three axes may be that of layers in a loop.
        ((8, 4, 4), 1),
        ((8, 4, 6), 2),
        ((8, 3, 5), 0),
    ],
)
def test_the_largest_axis_that_can_be_cut_is_cut(shape, axis):
    found = ShardPlan(8).choose(devices(2), shape)
    assert found.split == Split(axis, 2, (AXIS,))
    assert str(found).startswith(f"axis {axis}, 2 parts (")


@pytest.mark.parametrize(
    ("count", "shape", "axis", "parts"),
    [(8, (4, 3), 0, 4), (8, (6, 6, 6), 1, 2), (6, (3, 5), 0, 3), (6, (2, 9), 1, 3)],
)
def test_groups_of_devices_have_all_parts_if_not_all_divide(count, shape, axis, parts):
    found = ShardPlan(8).choose(devices(count), shape)
    assert found.split == Split(axis, parts, (AXIS,), count // parts)
    told = f"axis {axis}, {parts} parts in {count // parts} copies (largest axis)"
    assert str(found) == told


@pytest.mark.parametrize(
    ("count", "shape", "reason"),
    [
        (2, (3, 1), "below 8 elements"),
        (2, (), "below 8 elements"),
        (2, (3, 3), "no axis fits 2 devices"),
        (6, (5, 5), "no axis fits 6 devices"),
        (1, (8, 8), "one device"),
    ],
)
def test_what_stays_whole_says_why(count, shape, reason):
    found = ShardPlan(8).choose(devices(count), shape)
    assert (found.split, str(found)) == (None, f"whole ({reason})")


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (("spread", None, None, None), ValueError, "received 'spread'"),
        (("mirrored", 4, None, None), ValueError, "none is"),
        (("mirrored", None, {"w": 1}, None), ValueError, "shard_rules="),
        (("mirrored", None, None, "step"), ValueError, "gather='step' is about"),
        (("sharded", 0, None, None), ValueError, "received 0"),
        (("sharded", None, None, "late"), ValueError, "received 'late'"),
        (("sharded", None, {"(": 1}, None), TypeError, "regular expressions"),
        (("sharded", None, {"w": 1.5}, None), TypeError, "'w': 1.5"),
        (("sharded", None, {"w": True}, None), TypeError, "whole number"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(options, kind, words):
    with pytest.raises(kind, match=words):
        shard_plan.make_plan(*options)


def test_rules_say_what_is_cut_and_slots_follow_their_variables():
    strategy = sharded(2, shard_rules={"^table$": -1, "keep": None, "": 0})
    shapes = {"table": (4, 6), "keep/me": (8, 8), "other": (4, 6), "small": (2,)}
    every = made(strategy, **shapes)
    assert [axis_of(v) for v in every] == [1, None, 0, None]
    with strategy.scope():
        optimizer = tf.optimizers.Optimizer(optax.adam(0.1), every)
    slots = [v for v in optimizer.variables if len(v.shape)]
    assert [axis_of(v) for v in slots] == [1, None, 0, None] * 2
    rows = strategy.describe(every).rows
    assert [r.cut for r in rows] == [
        "axis 1, 2 parts (shard_rules)",
        "whole (shard_rules)",
        "axis 0, 2 parts (shard_rules)",
        "whole (below 8 elements)",
    ]
    assert "axis 1, 2 parts" in str(strategy.describe(every))
    mirrored = tf.distribute.MirroredStrategy(machine.names(2))
    assert "cut" not in str(mirrored.describe(made(mirrored, w=(8, 8))))


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        (2, "Name an axis of it"),
        (-3, "Name an axis of it"),
        (1, "does not fit 2 devices"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(axis, words):
    with pytest.raises(ValueError, match=f"axis {axis} of the variable 'w'.*{words}"):
        made(sharded(2, shard_rules={"w": axis}), w=(4, 5))


def test_a_rule_without_a_variable_is_refused_with_the_names():
    strategy = sharded(2, shard_rules={"kernel": 0, "karnel": 1})

    @tf.function
    def step():
        strategy.run(lambda: None)

    step()  # There is no variable yet.
    made(strategy, kernel=(4, 4), bias=(4,))
    with pytest.raises(ValueError, match=r"'karnel'.*There are: 'kernel', 'bias'"):
        tf.function(lambda: strategy.run(lambda: None))()
    with pytest.raises(ValueError, match="karnel"):
        strategy.describe([])
    made(strategy, karnel=(4, 4))
    tf.function(lambda: strategy.run(lambda: None))()


def test_what_is_large_and_whole_is_logged_once(caplog):
    with caplog.at_level(logging.WARNING, "unisono"):
        strategy = sharded(2, shard_rules={"meant": None})
        shapes = {"odd": (3, 5), "meant": (3, 7), "small": (3,), "even": (4, 4)}
        every = made(strategy, **shapes)
        with strategy.scope():
            tf.optimizers.Optimizer(optax.adam(0.1), every)
    (record,) = caplog.records
    assert "'odd' of shape (3, 5)" in record.getMessage()
    assert "no axis fits 2 devices" in record.getMessage()


def spread(*counts):
    """Returns the replicas of workers that have so many devices each."""
    owners = [w for w, count in enumerate(counts) for _ in range(count)]
    fakes = tuple(types.SimpleNamespace(process_index=w) for w in owners)
    names = tuple(f"CPU:{i}" for i in range(len(owners)))
    return Topology(names, fakes, len(counts), 0, 0, counts[0])


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ((2, 2), Split(0, 2, (AXIS,), 2)),
        ((4, 4), Split(0, 4, (AXIS,), 2)),
        ((4, 2), Split(0, 2, (AXIS,), 3)),
        ((1, 1), None),
        ((2, 3), None),
    ],
)
def test_within_workers_a_variable_is_cut_over_the_devices_of_each(counts, wanted):
    plan = shard_plan.make_plan("sharded", 8, None, None, "worker")
    assert plan is not None
    assert plan.choose(spread(*counts), (12, 5)).split == wanted


def test_over_all_workers_a_variable_is_cut_over_all_devices():
    plan = shard_plan.make_plan("sharded", 8, None, None, "all")
    assert plan is not None
    assert plan.choose(spread(2, 2), (12, 5)).split == Split(0, 4, (AXIS,))


def test_shard_over_has_two_values_and_goes_with_sharded_state():
    with pytest.raises(ValueError, match="shard_over"):
        shard_plan.make_plan("sharded", None, None, None, "machine")
    with pytest.raises(ValueError, match='state="sharded"'):
        shard_plan.make_plan("mirrored", None, None, None, "worker")


def test_a_rule_is_not_that_of_a_variable_whose_name_is_contained():
    strategy = sharded(2, shard_rules={"^w$": None, "^wq$": 0})
    with strategy.scope():
        made = [tf.Variable(np.zeros((4, 8)), name=n) for n in ("w", "wq", "window")]
    assert [v.state_cell.cut_text for v in made] == [
        "whole (shard_rules)",
        "axis 0, 2 parts (shard_rules)",
        "axis 1, 2 parts (largest axis)",
    ]
