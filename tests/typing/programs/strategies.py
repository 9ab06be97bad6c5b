"""Strategies, contexts and values of several replicas."""

from collections.abc import Sequence
from typing import Any, assert_type

import jax
import jax.numpy as jnp

import unisono
from unisono import distribute

assert_type(distribute.get_strategy(), distribute.Strategy)
assert_type(distribute.has_strategy(), bool)


def chosen(count: int) -> distribute.Strategy:
    if count == 1:
        return distribute.OneDeviceStrategy("CPU:0")
    return distribute.MirroredStrategy(jax.devices()[:count], state="sharded")


strategy = chosen(2)
with strategy.scope() as entered:
    assert_type(entered, distribute.Strategy)
    total = unisono.Variable(
        0,
        dtype=jnp.int32,
        trainable=False,
        synchronization=unisono.VariableSynchronization.ON_READ,
        aggregation=unisono.VariableAggregation.SUM,
    )
assert_type(strategy.num_replicas_in_sync, int)
assert_type(strategy.extended, distribute.StrategyExtended)
assert_type(total.aggregation, unisono.VariableAggregation)
assert_type(total.values, tuple[unisono.Variable, ...])


def replica_fn(x: jax.Array) -> jax.Array:
    context = distribute.get_replica_context()
    assert context is not None
    assert_type(context, distribute.ReplicaContext)
    assert_type(context.num_replicas_in_sync, int)
    assert_type(context.all_reduce("SUM", x), jax.Array)
    assert_type(context.all_reduce(distribute.ReduceOp.MEAN, 1.0), jax.Array)
    assert_type(context.all_gather(x, axis=0), jax.Array)
    rows = unisono.IndexedSlices(x, jnp.arange(2), (4, 2))
    assert_type(context.all_reduce("SUM", rows), unisono.IndexedSlices)
    assert_type(rows.to_dense(), jax.Array)
    total.assign_add(1)
    anything: Any = x
    assert_type(context.all_reduce("SUM", anything), Any)
    assert_type(context.all_gather(anything, axis=0), Any)
    return x


def value_fn(context: distribute.ValueContext) -> jax.Array:
    return jnp.ones(context.replica_id_in_sync_group + 1)


values = strategy.experimental_distribute_values_from_function(value_fn)
results = strategy.run(replica_fn, args=(values,), kwargs={})
assert_type(strategy.reduce("MEAN", results, axis=0), Any)
assert_type(strategy.gather(results, axis=0), Any)
assert_type(distribute.PerReplica([1, 2]).values, tuple[Any, ...])
assert_type(distribute.Mirrored([1, 1]) + 1, jax.Array)
with unisono.variable_creator_scope(lambda next_creator, **kwargs: next_creator()):
    pass
print(strategy.describe(total).table.title)

extended = strategy.extended
assert_type(extended.read_var(total), jax.Array)
assert_type(extended.non_slot_devices([total]), Sequence[str] | unisono.Variable)
extended.update(total, lambda v, x: v.assign_add(x), args=[1.0])
extended.batch_reduce_to("SUM", [(values, total), (values, "CPU:0")])
rates: dict[str, float] = {"rate": 0.1}
strategy.run(replica_fn, args=[values], kwargs=rates)


def model_fn(features: jax.Array, mode: str) -> unisono.estimator.EstimatorSpec:
    return unisono.estimator.EstimatorSpec(mode, predictions=features)


model = unisono.estimator.Estimator(model_fn)
spec = model.model_fn(jnp.ones(2), None, "infer", model.config)
assert_type(spec, unisono.estimator.EstimatorSpec)
