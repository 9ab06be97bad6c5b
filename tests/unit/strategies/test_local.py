"""`update` calls a function for each copy of a variable."""

import jax.numpy as jnp
import pytest

import unisono as uni
from tests import machine


@pytest.fixture
def strategy():
    return uni.distribute.MirroredStrategy(machine.names(2))


@pytest.fixture
def weight(strategy):
    with strategy.scope():
        return uni.Variable(1.0)


def test_results_are_one_mirrored_value_or_one_for_each_copy(strategy, weight):
    update = strategy.extended.update

    def add(v, x):
        return v.assign_add(x)

    assert isinstance(update(weight, add, (2.0,)), uni.distribute.Mirrored)
    assert [float(x) for x in update(weight, add, (2.0,), group=False)] == [5.0, 5.0]
    # What is no array is None in a group, unless all copies gave the same object.
    assert update(weight, lambda v: object()) is None
    assert update(weight, lambda v: "text") == "text"
    assert update(weight, lambda v: "text", group=False) == ("text",)


def test_each_copy_gets_its_own_part_on_its_own_device(strategy, weight):
    parts = uni.distribute.Mirrored((jnp.float32(4.0), jnp.float32(4.0)))
    seen = []

    def change(v, x):
        seen.append(jnp.zeros(()).device)
        v.assign(x)

    strategy.extended.update(weight, change, (parts,))
    assert float(weight.numpy()) == 4.0
    assert len(set(seen)) == 2


def test_copies_that_would_differ_keep_their_old_value(strategy, weight):
    values = uni.distribute.PerReplica((jnp.float32(1.0), jnp.float32(2.0)))
    with pytest.raises(ValueError, match="copies"):
        strategy.extended.update(weight, lambda v, x: v.assign_add(x), (values,))
    assert float(weight.numpy()) == 1.0


def test_state_of_no_variable_is_updated_once_for_each_device(strategy):
    where = strategy.extended.non_slot_devices([])
    made = strategy.extended.update_non_slot(where, lambda: jnp.ones(()), group=False)
    assert len({x.device for x in made}) == 2
    with pytest.raises(AssertionError, match="non_slot_devices"):
        strategy.extended.update_non_slot("CPU:0", jnp.zeros, args=(2,))
