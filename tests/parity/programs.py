"""What the programs of these tests share: short names, and plain Python from values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import unisono as tf
from tests import machine

SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
AGGREGATION, SYNCHRONIZATION = tf.VariableAggregation, tf.VariableSynchronization

EAGER, COMPILED, ENCLOSED = "eager", "compiled", "enclosed"
EXECUTIONS = (EAGER, COMPILED, ENCLOSED)


def device_names(n):
    """The names of the first `n` devices."""
    return machine.names(n)


@functools.cache
def mirrored(n):
    """A `MirroredStrategy` of `n` replicas; always the same one."""
    return tf.distribute.MirroredStrategy(device_names(n))


@functools.cache
def central(n):
    """A `CentralStorageStrategy` of `n` replicas; always the same one."""
    return tf.distribute.experimental.CentralStorageStrategy(
        device_names(n), machine.name(0)
    )


@functools.cache
def one_device():
    """A `OneDeviceStrategy`, not on the default device if there are two."""
    return tf.distribute.OneDeviceStrategy(machine.another())


def context():
    """The replica context of the running code."""
    return tf.distribute.get_replica_context()


def index():
    """The replica's id as a Python number; eager code only."""
    return int(context().replica_id_in_sync_group)


def number():
    """1 + the replica's id as a float32 scalar, eager or traced."""
    return jnp.asarray(context().replica_id_in_sync_group, jnp.float32) + 1.0


def numbers(n):
    """What `number` gives on each of `n` replicas."""
    return [1.0 + i for i in range(n)]


def per_replica(strategy, *parts):
    """A per-replica value of JAX arrays made of `parts`."""
    return strategy.experimental_distribute_values_from_function(
        lambda c: jnp.asarray(parts[c.replica_id_in_sync_group])
    )


def execute(how, strategy, fn, args=(), kwargs=None):
    """`strategy.run(fn)`: as it is, of a compiled `fn`, or inside a compiled function.

    The three must give the same numbers.
    """
    if how == COMPILED:
        return strategy.run(tf.function(fn), args=args, kwargs=kwargs)
    if how == ENCLOSED:
        return tf.function(lambda a, k: strategy.run(fn, args=a, kwargs=k))(
            args, kwargs
        )
    return strategy.run(fn, args=args, kwargs=kwargs)


def plain(x):
    """`x` with Python numbers and lists in place of arrays and variables."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(plain, x))
    if isinstance(x, list | tuple):
        return type(x)(map(plain, x))
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    if isinstance(x, tf.IndexedSlices):
        return {"values": plain(x.values), "indices": plain(x.indices)}
    if isinstance(x, jax.Array | np.ndarray | np.generic | tf.Variable):
        return np.asarray(x).tolist()
    return x


def local(strategy, x):
    """The local results of `x`, as plain Python."""
    return [plain(part) for part in strategy.experimental_local_results(x)]


def copies(variable):
    """The value of each copy of a distributed variable."""
    return [plain(component) for component in variable.values]


def kind(x):
    """Type names as TensorFlow's users tell values apart."""
    return "array" if isinstance(x, jax.Array) else type(x).__name__


def device_index(x):
    """Which device holds an array."""
    (device,) = x.devices()
    return machine.local_devices().index(device)


def variable(strategy, value=0.0, aggregation="NONE", synchronization="AUTO", **more):
    """A variable made in the scope of `strategy`."""
    with strategy.scope():
        return tf.Variable(
            value,
            aggregation=AGGREGATION[aggregation],
            synchronization=SYNCHRONIZATION[synchronization],
            **more,
        )


def on_read(strategy, value=0.0, aggregation="SUM", **more):
    """A sync-on-read variable made in the scope of `strategy`."""
    return variable(strategy, value, aggregation, "ON_READ", **more)
