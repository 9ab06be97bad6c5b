"""Copies on the devices of one process that differ are found within some steps."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests import machine
from unisono._src.state import copy_checks

EVERY = 4


@pytest.fixture(autouse=True)
def every(monkeypatch):
    begin(monkeypatch, EVERY)


def begin(monkeypatch, every):
    """Has the steps of a test compare copies, and those of no other."""
    monkeypatch.setenv("UNISONO_CHECK_REPLICAS", str(every))
    monkeypatch.setattr(copy_checks._Current, "checks", copy_checks.CopyChecks(every))


def flip(variable, device):
    """Flips the lowest bit of the first element on one device."""
    array = variable.state_cell.array
    pieces = [np.array(s.data) for s in array.addressable_shards]
    pieces[device].reshape(-1).view(np.uint8)[0] ^= 1
    devices = [s.device for s in array.addressable_shards]
    variable.state_cell.store(
        jax.make_array_from_single_device_arrays(
            array.shape, array.sharding, jax.device_put(pieces, devices)
        )
    )


def make_step(strategy, *variables):
    @tf.function
    def step():
        def replica():
            for v in variables:
                v.assign_add(jnp.ones(v.shape, v.dtype))
            return jnp.ones(())

        return strategy.reduce("SUM", strategy.run(replica), axis=None)

    return step


@pytest.mark.needs_devices(3)
def test_a_flipped_bit_on_one_device_is_found_and_named():
    strategy = tf.distribute.MirroredStrategy(machine.names(3))
    with strategy.scope():
        mean = tf.VariableAggregation.MEAN
        w = tf.Variable(jnp.ones((2, 2)), name="w", aggregation=mean)
        frozen = tf.Variable(jnp.ones(3, jnp.bfloat16), name="frozen")
    step = make_step(strategy, w)
    for _ in range(3 * EVERY):
        step().block_until_ready()
    flip(frozen, 1)
    with pytest.raises(tf.errors.WorkerMismatchError, match=r"'frozen'.*device 1 has"):
        for _ in range(EVERY + 2):
            step().block_until_ready()
    # Other tests look at all variables that still live.
    flip(frozen, 1)


@pytest.mark.needs_devices(2)
def test_copies_that_are_equal_are_left_alone():
    strategy = tf.distribute.MirroredStrategy(machine.names(2))
    with strategy.scope():
        mean = tf.VariableAggregation.MEAN
        values = [
            tf.Variable(jnp.full(2, np.nan), aggregation=mean),
            tf.Variable(jnp.zeros(3, jnp.bfloat16), aggregation=mean),
            # Each replica has a value of its own.
            tf.Variable(
                jnp.zeros(()),
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            ),
        ]
    step = make_step(strategy, *values)
    for _ in range(5 * EVERY):
        step()
    assert float(values[2].read_value()) == 10 * EVERY


def test_without_the_variable_nothing_is_compared(monkeypatch):
    monkeypatch.delenv("UNISONO_CHECK_REPLICAS")
    assert copy_checks.find_checks() is None


def test_a_variable_that_is_no_number_is_told(monkeypatch):
    monkeypatch.setenv("UNISONO_CHECK_REPLICAS", "often")
    with pytest.raises(ValueError, match=r"--check-replicas.*'often'"):
        copy_checks.find_checks()


def test_a_program_that_ends_before_the_next_comparison_fails():
    program = """
        import jax.numpy as jnp
        import unisono as tf
        from tests.unit.state import test_copy_checks

        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1", "/cpu:2"])
        with strategy.scope():
            mean = tf.VariableAggregation.MEAN
            v = tf.Variable(jnp.ones(2), name="v", aggregation=mean)
        step = test_copy_checks.make_step(strategy, v)
        step()
        if {is_wrong}:
            test_copy_checks.flip(v, 2)
        print("the end")
    """
    for is_wrong in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program).format(is_wrong=is_wrong)],
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert "the end" in done.stdout
        assert done.returncode == is_wrong
        assert ("'v' differ before step 2: device 2 has" in done.stderr) == is_wrong
