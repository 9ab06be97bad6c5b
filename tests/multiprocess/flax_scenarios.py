"""What workers are told to run with Flax; as in `scenarios`."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import unisono as tf
from tests.multiprocess.scenarios import plain


def train_in_parts(s, w):
    """Trains a model whose weights may be split; returns losses and weights."""
    with s.scope():
        first = nnx.Linear(5, 16, rngs=nnx.Rngs(0))
        last = nnx.Linear(16, 4, rngs=nnx.Rngs(1))
        model = nnx.Sequential(first, nnx.tanh, last)
        optimizer = nnx.Optimizer(model, optax.adam(0.05), wrt=nnx.Param)

    @tf.function
    def step(x):
        def replica(x):
            def loss_of(model):
                return jnp.mean(model(x) ** 2)

            loss, grads = nnx.value_and_grad(loss_of)(model)
            grads = tf.distribute.get_replica_context().all_reduce("MEAN", grads)
            optimizer.update(model, grads)
            return loss

        return s.reduce("MEAN", s.run(replica, args=(x,)), axis=None)

    rng = np.random.default_rng(3)
    losses = []
    for _ in range(3):
        rows = rng.normal(size=(s.num_replicas_in_sync, 2, 5)).astype("f4")
        given = s.experimental_distribute_values_from_function(
            lambda c, rows=rows: jnp.asarray(rows[c.replica_id_in_sync_group])
        )
        losses.append(float(step(given)))
    shown = repr(first.kernel) if w == 0 else ""
    kernels = [first.kernel[...], last.kernel[...]]
    return plain([losses, kernels, shown])
