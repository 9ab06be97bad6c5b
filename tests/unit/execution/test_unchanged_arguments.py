"""A function leaves the lists and dictionaries that it is given as they are."""

import collections

import numpy as np
import pytest

import unisono
from tests import machine

REFUSED = r"should not modify its Python input arguments"


def one():
    return unisono.constant(1.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x["list"].append(3.0),
        lambda x: x["list"].pop(),
        lambda x: x["list"].reverse(),
        lambda x: x.update(more=3.0),
        lambda x: x.pop("list"),
        lambda x: x.update(value=x["value"] + 1.0),
        lambda x: x["deep"][0]["empty"].append(x["value"]),
    ],
)
def test_a_change_of_an_argument_is_an_error(change):
    step = unisono.function(lambda x, other: (change(x), other)[1])

    def given():
        inner = {"empty": []}
        return {"list": [one(), 2 * one()], "value": one(), "deep": (inner,)}

    for call in (
        lambda x: step(x, 1.0),
        lambda x: step(other=1.0, x=x),
        # Called by another function, it is a part of that one's program.
        unisono.function(lambda x: step(dict(x), 1.0)),
    ):
        before = given()
        with pytest.raises(ValueError, match=REFUSED):
            call(before)
        assert str(before) == str(given())


def test_a_change_of_a_copy_is_no_change():
    @unisono.function
    def step(batch, *rest, **named):
        batch, named = dict(batch), {**named, "z": 1.0}
        label = batch.pop("label")
        return batch["x"] + label + len(rest) + len(named)

    given = collections.OrderedDict(label=one(), x=2 * one())
    assert float(step(given, one(), y=one())) == 6.0
    assert list(given) == ["label", "x"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_may_change_their_own_containers_but_functions_may_not(replicas):
    # As in TensorFlow, where each replica gets containers of its own.
    strategy = unisono.distribute.MirroredStrategy(machine.names(replicas))
    rows = {"x": np.arange(4.0), "label": np.ones(4)}
    dataset = unisono.data.Dataset.from_tensor_slices(rows).batch(2)
    distributed = strategy.experimental_distribute_dataset(dataset)

    def replica(batch):
        label = batch.pop("label")
        return unisono.reduce_sum(batch["x"] + label)

    @unisono.function
    def epoch(dataset):
        found = 0.0
        for batch in dataset:
            per_replica = strategy.run(replica, args=(batch,))
            found += strategy.reduce("SUM", per_replica, axis=None)
        return found

    assert float(epoch(distributed)) == 10.0
    batch = next(iter(distributed))
    compiled = unisono.function(replica)
    for run in (
        lambda: strategy.run(compiled, args=(batch,)),
        unisono.function(lambda: strategy.run(compiled, args=(dict(batch),))),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            run()
    assert set(batch) == {"x", "label"}
