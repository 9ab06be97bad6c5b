"""`unisono.function` in every form keeps the signature of what it decorates."""

from collections.abc import Callable
from typing import assert_type

import jax
import jax.numpy as jnp

import unisono


@unisono.function
def plain(x: jax.Array, scale: float = 1.0) -> jax.Array:
    return x * scale


@unisono.function(input_signature=[unisono.TensorSpec([None], unisono.float32)])
def with_signature(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, x


@unisono.function(jit_compile=True, reduce_retracing=True)
def with_options(*, count: int) -> None:
    return None


def undecorated(x: jax.Array) -> dict[str, jax.Array]:
    return {"x": x}


called = unisono.function(undecorated, autograph=False)

array = jnp.ones(3)
assert_type(plain(array), jax.Array)
assert_type(plain(array, scale=2.0), jax.Array)
assert_type(with_signature(array), tuple[jax.Array, jax.Array])
assert_type(with_options(count=3), None)
assert_type(called(array), dict[str, jax.Array])
assert_type(called.python_function(array), dict[str, jax.Array])
assert_type(plain.lowered(array, 2.0), jax.stages.Lowered)
assert_type(plain.experimental_get_tracing_count(), int)


class Model(unisono.Module):
    """A model whose steps are compiled methods."""

    def __init__(self) -> None:
        super().__init__(name="model")
        self.w = unisono.Variable(1.0)

    @unisono.function
    def step(self, x: jax.Array) -> jax.Array:
        return self.w * x

    @unisono.function(autograph=False)
    def evaluate(self, x: jax.Array, *, times: int = 1) -> int:
        return times


model = Model()
assert_type(model.step(array), jax.Array)
assert_type(model.evaluate(array, times=2), int)
assert_type(Model.step(model, array), jax.Array)
assert_type(model.variables, tuple[unisono.Variable, ...])

as_callable: Callable[[jax.Array], jax.Array] = plain
