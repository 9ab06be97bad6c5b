"""Everyday names that are written by hand keep the types of what they are given."""

from typing import assert_type

import jax
import jax.numpy as jnp

import unisono

x = jnp.ones(3)

assert_type(unisono.random.normal([2, 3]), jax.Array)
assert_type(unisono.cond(x[0] > 0, lambda: x, lambda: -x), jax.Array)
assert_type(unisono.TensorShape([None, 3]).as_list(), list[int | None])
assert_type(unisono.TensorShape([2, 3])[1:], unisono.TensorShape)
with unisono.name_scope("outer") as scope:
    assert_type(scope, str)
with unisono.device("CPU:0"):
    assert_type(unisono.debugging.check_numerics(x, "x"), jax.Array)
unisono.random.normal(shape="wide")  # type: ignore[arg-type]
unisono.cond(True, 3, lambda: 1)  # type: ignore[arg-type]
