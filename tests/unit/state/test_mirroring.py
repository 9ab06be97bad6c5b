"""Copies that were written one by one are compared before anybody sees one value."""

import jax.numpy as jnp
import pytest

import unisono as tf
from tests.parity.programs import device_names, mirrored, variable
from unisono._src.state import mirroring


def write(v, *numbers):
    for component, number in zip(v.values, numbers, strict=True):
        component.assign(jnp.full(2, number))


def split():
    strategy = tf.distribute.MirroredStrategy(
        device_names(2), state="sharded", shard_above=1
    )
    return variable(strategy, jnp.zeros(2))


KINDS = {"whole": lambda: variable(mirrored(2), jnp.zeros(2)), "cut": split}


@pytest.mark.parametrize("kind", KINDS)
def test_equal_copies_are_trusted_again(kind):
    v = KINDS[kind]()
    write(v, 3.0, 3.0)
    assert v.state_cell.is_suspect
    mirroring.verify(v.state_cell)
    assert not v.state_cell.is_suspect
    assert v.numpy().tolist() == [3.0, 3.0]


def test_copies_that_are_not_numbers_are_equal():
    v = KINDS["whole"]()
    write(v, jnp.nan, jnp.nan)
    mirroring.verify(v.state_cell)
    assert not v.state_cell.is_suspect


@pytest.mark.parametrize("kind", KINDS)
def test_different_copies_stay_an_error_until_an_assignment(kind):
    v = KINDS[kind]()
    write(v, 3.0, 4.0)
    for _ in range(2):
        with pytest.raises(ValueError, match="differ"):
            mirroring.settle([v.state_cell])
    v.assign(jnp.ones(2))
    mirroring.verify(v.state_cell)
    assert v.numpy().tolist() == [1.0, 1.0]


def test_the_array_before_is_put_back_if_copies_differ():
    v = KINDS["whole"]()
    before = v.state_cell.array
    write(v, 3.0, 4.0)
    with pytest.raises(ValueError, match="differ"):
        mirroring.verify(v.state_cell, (before, False))
    assert v.numpy().tolist() == [0.0, 0.0]


def test_an_array_that_somebody_holds_is_copied_before_a_step_takes_it():
    v = tf.Variable(jnp.zeros(2))
    held = v.value()
    assert v.state_cell.array is held
    mirroring.unescape([v.state_cell])
    assert v.state_cell.array is not held
    assert not v.state_cell.escaped
    own = v.state_cell.array
    mirroring.unescape([v.state_cell])
    assert v.state_cell.array is own
