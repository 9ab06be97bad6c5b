"""A training loop with a strategy, an optimizer, metrics and a compiled step."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unisono
from unisono import distribute

strategy = distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope() as entered:
    assert_type(entered, distribute.MirroredStrategy)
    w = unisono.Variable(jnp.zeros((4, 1)), name="w")
    b = unisono.Variable(0.0)
    optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [w, b])
    mean = unisono.metrics.Mean(name="loss")

assert_type(w, unisono.Variable)
assert_type(w.value(), jax.Array)
assert_type(w.numpy(), np.ndarray)
assert_type(w.shape, unisono.TensorShape)
sizes: tuple[int, ...] = w.shape
rows: int = w.shape[0] + 1
assert_type(w * 2.0 + b, jax.Array)
assert_type(-b, jax.Array)
assert_type(2.0 - b, jax.Array)
assert_type(b == 0.0, jax.Array)
row: jax.Array = w[0]
assert_type(w[0].assign(0.0), jax.Array)
assert_type(b.assign_add(1.0, read_value=False), None)


def loss_fn(x: jax.Array, y: jax.Array) -> jax.Array:
    errors = jnp.square(x @ w + b - y)
    return unisono.nn.compute_average_loss(errors, global_batch_size=8)


assert_type(loss_fn(jnp.ones((2, 4)), jnp.ones((2, 1))), jax.Array)

gradients_of = unisono.value_and_grad(loss_fn, [w, b])
loss, gradients = gradients_of(jnp.ones((2, 4)), jnp.ones((2, 1)))
assert_type(loss, jax.Array)
assert_type(gradients, list[jax.Array])

one = unisono.grad(loss_fn, w)(jnp.ones((2, 4)), jnp.ones((2, 1)))
assert_type(one, jax.Array)


def with_aux(x: jax.Array) -> tuple[jax.Array, dict[str, int]]:
    return jnp.sum(x * b), {"rows": 2}


(value, aux), (gradient,) = unisono.value_and_grad(with_aux, [b], has_aux=True)(
    jnp.ones(3)
)
assert_type(value, jax.Array)
assert_type(aux, dict[str, int])
assert_type(gradient, jax.Array)


@unisono.function
def train_step(x: jax.Array, y: jax.Array) -> jax.Array:
    loss, gradients = unisono.value_and_grad(loss_fn, [w, b])(x, y)
    optimizer.apply(gradients)
    optimizer.apply_gradients(zip(gradients, [w, b], strict=True))
    mean.update_state(loss)
    return loss


dataset = unisono.data.Dataset.from_tensor_slices(
    (np.ones((64, 4), "float32"), np.ones((64, 1), "float32"))
).batch(8)
for x, y in strategy.experimental_distribute_dataset(dataset):
    per_replica: distribute.PerReplica = strategy.run(train_step, args=(x, y))
    assert_type(strategy.reduce("SUM", per_replica, axis=None), jax.Array)
    assert_type(
        strategy.reduce(distribute.ReduceOp.MEAN, per_replica, axis=0), jax.Array
    )
    assert_type(strategy.gather(per_replica, axis=0), jax.Array)
    assert_type(strategy.experimental_local_results(per_replica), tuple[Any, ...])

assert_type(mean.result(), jax.Array)
mean.reset_state()

for number in unisono.train.Progress(range(3)):
    assert_type(number, int)
