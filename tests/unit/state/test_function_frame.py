"""A program being traced has the values of its variables in one frame."""

import jax.numpy as jnp
import pytest

import unisono as tf
from tests.parity.programs import mirrored, on_read, variable
from unisono._src.state import frames


def in_function(check):
    tf.function(lambda: check(frames.frame()))()


def test_copies_are_pending_until_all_are_written():
    v = variable(mirrored(2), 1.0)
    cell = v.state_cell

    def check(frame):
        first, second = jnp.float32(5), jnp.float32(6)
        frame.set_copy(cell, 0, first)
        assert frame.copy(cell, 0) is first
        with pytest.raises(ValueError, match="differ"):
            frame.whole(cell)
        with pytest.raises(ValueError, match="differ"):
            frame.finish()
        frame.set_copy(cell, 1, second)
        # The value of replica 0 stands for all; the program has to prove the others.
        assert frame.whole(cell) is first
        ((found, one, other),) = frame.alike
        assert found is cell
        assert one is first
        assert other is second
        frame.set_whole(cell, frame.inputs[cell])
        frame.alike.clear()

    in_function(check)


def test_replicas_get_objects_of_their_own():
    v = variable(mirrored(2), 1.0)
    own = on_read(mirrored(2), 2.0)

    def check(frame):
        assert frame.copy(v.state_cell, 0) is frame.whole(v.state_cell)
        assert frame.copy(v.state_cell, 1) is not frame.whole(v.state_cell)
        frame.set_copy(own.state_cell, 1, jnp.float32(5))
        assert frame.whole(own.state_cell).shape == (2,)

    in_function(check)
    assert float(own.numpy()) == 7.0


def test_a_variable_that_a_program_makes_is_stored_before_the_program_runs():
    made = []

    def check(frame):
        if not made:
            made.append(tf.Variable(3.0))
            cell = made[0].state_cell
            assert cell in frame.created
            assert cell not in frame.written
            assert cell in frame.cells()
        made[0].assign_add(1.0)

    in_function(check)
    assert float(made[0].numpy()) == 4.0
