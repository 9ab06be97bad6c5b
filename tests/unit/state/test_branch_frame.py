"""The body of a branch or loop has values of its own until it ends."""

import jax
import jax.numpy as jnp
import pytest

import unisono as tf
from tests.parity.programs import mirrored, on_read, variable
from unisono._src.foundation import ambient
from unisono._src.state import branch_frame, frames


def in_body(check):
    """Calls `check(frame, outer)` in a body that JAX traces, in a function."""

    @tf.function
    def step():
        outer = frames.frame()

        def body(x):
            inner = branch_frame.BranchFrame(outer, {})
            with ambient.push(state=inner):
                check(inner, outer)
            return x

        return jax.lax.cond(jnp.array(True), body, lambda x: x, 1.0)

    step()


def test_writes_stay_in_the_body():
    v = tf.Variable(1.0)
    cell = v.state_cell

    def check(inner, outer):
        before = outer.whole(cell)
        v.assign_add(1.0)
        assert list(inner.written) == [cell]
        assert inner.whole(cell) is not before
        assert outer.whole(cell) is before

    in_body(check)
    assert float(v.numpy()) == 1.0


def test_a_body_writes_a_row_of_a_value_per_replica():
    v = on_read(mirrored(2), 1.0)

    def check(inner, _):
        inner.set_copy(v.state_cell, 1, jnp.float32(5))
        assert inner.whole(v.state_cell).shape == (2,)
        assert inner.copy(v.state_cell, 1).shape == ()

    in_body(check)


def test_a_body_cannot_write_one_copy_or_make_a_variable():
    v = variable(mirrored(2), 1.0, name="w")

    def check(inner, _):
        with pytest.raises(RuntimeError, match=r"One copy of .*'w'"):
            inner.set_copy(v.state_cell, 1, jnp.float32(5))
        with pytest.raises(ValueError, match="created inside a branch"):
            tf.Variable(1.0)

    in_body(check)
