"""Mistakes that must be found: each line that is wrong says which error it is.

A comment that finds no error is itself one, so a mistake that goes unseen fails.
"""

import jax
import jax.numpy as jnp

import unisono
from unisono import data, distribute, train

unisono.functoin  # type: ignore[attr-defined]
unisono.launhc  # type: ignore[attr-defined]
distribute.MirorredStrategy  # type: ignore[attr-defined]
distribute.DistributedDatset  # type: ignore[attr-defined]
distribute.experimental.TerminationConfg  # type: ignore[attr-defined]
unisono.config.set_virtual_device  # type: ignore[attr-defined]


@unisono.function
def step(x: jax.Array, scale: float = 1.0) -> jax.Array:
    return x * scale


@unisono.function(autograph=False)
def other(x: jax.Array) -> jax.Array:
    return x


class Model(unisono.Module):
    """A compiled method."""

    @unisono.function
    def call(self, x: jax.Array) -> jax.Array:
        return x


array = jnp.ones(3)
step()  # type: ignore[call-arg]
step(array, "2")  # type: ignore[arg-type]
step(array, speed=2.0)  # type: ignore[call-arg]
step(array).lenght  # type: ignore[attr-defined]
other("array")  # type: ignore[arg-type]
other(array, array)  # type: ignore[call-arg]
Model().call("array")  # type: ignore[arg-type]
unisono.function(3)  # type: ignore[call-overload]
unisono.function(autograf=True)  # type: ignore[call-overload]

w = unisono.Variable(1.0)
w.asign(2.0)  # type: ignore[attr-defined]
unisono.Variable(1.0, trainable="no")  # type: ignore[arg-type]
unisono.Variable(1.0, True, "w")  # type: ignore[call-arg]
unisono.Variable(1.0, aggregation="SUM")  # type: ignore[arg-type]
unisono.value_and_grad(step, 3)  # type: ignore[call-overload]
unisono.grad(step, [w], has_aux=True)  # type: ignore[call-overload]

strategy = distribute.MirroredStrategy()
strategy.run(step, array, {}, 3)  # type: ignore[arg-type]
strategy.run(3)  # type: ignore[arg-type]
strategy.reduce(distribute.ReduceOp.SUM, array)  # type: ignore[call-overload]
strategy.reduce(3, array, axis=None)  # type: ignore[call-overload]
strategy.experimental_distribute_dataset(array, options=3)  # type: ignore[arg-type]
with strategy.scope() as entered:
    entered.nothing  # type: ignore[attr-defined]
distribute.MirroredStrategy(state="shraded")  # type: ignore[arg-type]
distribute.MultiWorkerMirroredStrategy(cluster_resolver=3)  # type: ignore[arg-type]
distribute.get_replica_context().all_reduce("SUM", array)  # type: ignore[union-attr]

dataset = data.Dataset.range(3)
dataset.bath(2)  # type: ignore[attr-defined]
dataset.batch("2")  # type: ignore[arg-type]
dataset.map(3)  # type: ignore[arg-type]
dataset.take()  # type: ignore[call-arg]
dataset.concatenate([1, 2])  # type: ignore[arg-type]
data.TextLineDataset(3)  # type: ignore[arg-type]
data.Options().worker_processes = "two"  # type: ignore[assignment]

train.Checkpoint(w=w).save()  # type: ignore[call-arg]
train.CheckpointManager(w, "directory", 3)  # type: ignore[arg-type]
