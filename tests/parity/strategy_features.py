"""Which strategy can what: a small program for each feature, run under each strategy.

`test_strategy_features.py` runs every program under every strategy; the table in
`docs/how-to/choose-a-strategy.md` is written from `CELLS`.
"""

import contextlib
import re

import jax.numpy as jnp
import numpy as np
import optax

import unisono as tf
from tests import machine
from tests.unit.servers import clusters

_X = np.linspace(-1, 1, 40, dtype="float32").reshape(10, 4)
_Y = _X.sum(-1, keepdims=True) + 1
SHARDED = {"state": "sharded", "shard_above": 1}


class Plain:
    """A strategy whose program calls `run`.

    Args:
        strategy: the strategy.
    """

    def __init__(self, strategy):
        self.strategy = strategy

    def repeat(self, replica_step, batch, wrap):
        """Returns the sum of what the step gives for each batch of the data."""

        @wrap
        def step(x, y):
            found = self.strategy.run(replica_step, (x, y))
            return self.strategy.reduce("SUM", found, axis=None)

        data = self.strategy.experimental_distribute_dataset(_data().batch(batch))
        return np.sum([step(x, y) for x, y in data])


class Scheduled:
    """A strategy whose program schedules functions on workers.

    Args:
        strategy: the strategy.
        coordinator: its coordinator.
    """

    def __init__(self, strategy, coordinator):
        self.strategy, self.coordinator = strategy, coordinator

    def repeat(self, replica_step, batch, wrap):
        """Returns the sum of what the step gives for each batch of the data."""
        step = tf.function(lambda it: self.strategy.run(replica_step, next(it)))
        data = self.coordinator.create_per_worker_dataset(lambda: _data().batch(batch))
        iterator = iter(data)
        count = -(-len(_X) // batch)
        found = [self.coordinator.schedule(step, (iterator,)) for _ in range(count)]
        self.coordinator.join()
        return np.sum([value.fetch() for value in found])


@contextlib.contextmanager
def _servers():
    # One worker: several would change the variables in an order that is not fixed.
    with clusters.cluster(workers=1) as (strategy, coordinator):
        yield Scheduled(strategy, coordinator)


def tpu(**options):
    """Returns a strategy of two replicas, of two logical devices if they are split."""
    grid = tf.tpu.experimental.initialize_tpu_system()
    block = [1, 1, 1, 2] if options else [1, 1, 1, 1]
    made = tf.tpu.experimental.DeviceAssignment.build(grid, block, num_replicas=2)
    return tf.distribute.TPUStrategy(experimental_device_assignment=made, **options)


def _plain(make):
    return lambda: contextlib.nullcontext(Plain(make()))


STRATEGIES = {
    "none": _plain(lambda: tf.distribute.get_strategy()),
    "OneDevice": _plain(lambda: tf.distribute.OneDeviceStrategy(machine.name(0))),
    "Mirrored": _plain(lambda: tf.distribute.MirroredStrategy(machine.names(2))),
    "Mirrored, sharded": _plain(
        lambda: tf.distribute.MirroredStrategy(machine.names(2), **SHARDED)
    ),
    "MultiWorker": _plain(lambda: tf.distribute.MultiWorkerMirroredStrategy()),
    "TPU": _plain(lambda: tpu()),
    "CentralStorage": _plain(
        lambda: tf.distribute.experimental.CentralStorageStrategy(machine.names(2))
    ),
    "ParameterServer": _servers,
}


def _data():
    return tf.data.Dataset.from_tensor_slices((_X, _Y))


def _train(job, batch=5, wrap=tf.function):
    """Trains over ten examples with a tape; returns the weight and the summed loss."""
    with job.strategy.scope():
        w = tf.Variable(jnp.full((4, 1), 0.5))
        optimizer = tf.optimizers.Optimizer(optax.sgd(0.1, momentum=0.9), [w])

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss((x @ w - y) ** 2, global_batch_size=batch)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])
        return loss

    total = job.repeat(replica_step, batch, wrap)
    return np.asarray(w.numpy()), total


def custom_loop(job):
    return _train(job, wrap=lambda step: step)


def function(job):
    return _train(job)


def tapes(job):
    """Takes a second derivative, with a tape in a tape."""
    with job.strategy.scope():
        w = tf.Variable(2.0)

    def replica_step(x, y):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = jnp.sum(x**2) * w**3
            first = inner.gradient(loss, w)
        return outer.gradient(first, w)

    return job.repeat(replica_step, 5, tf.function)


def uneven_batches(job):
    """The last of the batches of 3 has one example: some replicas have none."""
    return _train(job, batch=3)


def fit(job):
    keras = tf.keras
    with job.strategy.scope():
        layer = keras.layers.Dense(1, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((4,)), layer])
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    data = _data().batch(5).repeat()
    told = model.fit(data, epochs=2, steps_per_epoch=2, verbose=0)
    return np.asarray(layer.kernel), told.history["loss"]


def datasets(job):
    """Reads a dataset, and one that a function makes, on all replicas."""
    strategy = job.strategy
    numbers = tf.data.Dataset.range(8).batch(4)
    total = 0
    for given in (
        strategy.experimental_distribute_dataset(numbers),
        strategy.distribute_datasets_from_function(
            lambda context: tf.data.Dataset.range(8).batch(
                context.get_per_replica_batch_size(4)
            )
        ),
    ):
        for batch in given:
            sums = strategy.run(lambda x: jnp.sum(x), (batch,))
            total += int(strategy.reduce("SUM", sums, axis=None))
    return total


def checkpoints(job, folder):
    """Restores under one device what the strategy has saved, and back."""
    with job.strategy.scope():
        v = tf.Variable(jnp.arange(4.0))
    saved = tf.train.Checkpoint(v=v).save(f"{folder}/a")
    with tf.distribute.OneDeviceStrategy(machine.name(0)).scope():
        other = tf.Variable(jnp.zeros(4))
    tf.train.Checkpoint(v=other).restore(saved).assert_consumed()
    other.assign_add(jnp.ones(4))
    back = tf.train.Checkpoint(v=other).save(f"{folder}/b")
    tf.train.Checkpoint(v=v).restore(back).assert_consumed()
    return np.asarray(v.numpy())


class _Exported(tf.Module):
    """A model to export."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(jnp.arange(4.0))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def __call__(self, x):
        return x @ self.w


def export(job, folder):
    with job.strategy.scope():
        model = _Exported()
    tf.saved_model.save(model, f"{folder}/model")
    return np.asarray(tf.saved_model.load(f"{folder}/model")(_X))


def metrics(job):
    with job.strategy.scope():
        mean = tf.metrics.Mean()

    def replica_step(x, y):
        mean.update_state(y)
        return jnp.sum(x)

    job.repeat(replica_step, 5, tf.function)
    return float(mean.result())


def stored_part(job):
    """Returns which part of a variable the device or server with most of it keeps."""
    with job.strategy.scope():
        v = tf.Variable(jnp.zeros((8, 2)))
    if isinstance(v, tf.distribute.ShardedVariable):
        return max(len(part.numpy()) for part in v.variables) / 8
    return job.strategy.describe([v]).bytes_per_device / 64


FEATURES = {
    "custom loop": custom_loop,
    "`function`": function,
    "tapes": tapes,
    "`fit`": fit,
    "datasets": datasets,
    "uneven batches": uneven_batches,
    "metrics": metrics,
    "checkpoints": checkpoints,
    "export": export,
}

YES, NO = "yes", "–"
# What is not plainly `YES`; the tests prove the others by the numbers of one device.
CELLS = {
    ("custom loop", "ParameterServer"): "`schedule`",
    ("datasets", "ParameterServer"): "per worker",
    **{
        (row, name): NO
        for row in ("several workers", "sharded state")
        for name in STRATEGIES
    },
    ("several workers", "MultiWorker"): YES,
    ("several workers", "TPU"): YES,
    ("several workers", "ParameterServer"): YES,
    ("sharded state", "Mirrored, sharded"): YES,
    ("sharded state", "MultiWorker"): "option",
    ("sharded state", "TPU"): "option",
    ("sharded state", "ParameterServer"): "partitioner",
}


def render():
    """Returns the table as Markdown."""
    rows = [*FEATURES, "several workers", "sharded state"]
    # With spaces, so that the heads of narrow columns can break.
    heads = ["", *(re.sub("(?<=[a-z])(?=[A-Z])", " ", name) for name in STRATEGIES)]
    lines = [heads, ["---"] * len(heads)]
    lines += [[row, *(CELLS.get((row, s), YES) for s in STRATEGIES)] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
