"""What workers are told to run about checkpoints; as in `scenarios`."""

import os
import pathlib
import time

import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni
from tests.multiprocess.scenarios import SYN, attempt, context, plain

ASYNC = uni.train.CheckpointOptions(enable_async=True)
AGG = uni.VariableAggregation


class Program:
    """State of every kind that workers share, and a step that changes it."""

    def __init__(self, strategy):
        self.strategy = strategy
        with strategy.scope():
            self.w = uni.Variable(jnp.zeros(3), name="w")
            self.large = uni.Variable(jnp.zeros((600, 600)), name="large")
            self.optimizer = uni.optimizers.Optimizer(optax.adam(0.1), [self.w])
            self.total = uni.metrics.Sum(name="total")
            self.mean = uni.Variable(
                0.0, synchronization=SYN.ON_READ, aggregation=AGG.MEAN
            )
        data = uni.data.Dataset.range(64).shuffle(64, seed=3).repeat().batch(8)
        self.position = iter(strategy.experimental_distribute_dataset(data))
        n = strategy.num_replicas_in_sync
        self.checkpoint = uni.train.Checkpoint(
            w=self.w,
            large=self.large,
            optimizer=self.optimizer,
            total=self.total,
            mean=self.mean,
            position=self.position,
            epoch=0,
        )

        @uni.function
        def step(batch):
            def one(x):
                x = x.astype(jnp.float32)
                grads = uni.grad(lambda: jnp.sum(self.w**2) / n, [self.w])
                self.optimizer.apply_gradients([(grads()[0] + jnp.sum(x) / 64, self.w)])
                self.total.update_state(x)
                self.mean.assign(context().all_reduce("SUM", jnp.sum(x)))

            strategy.run(one, args=(batch,))
            self.large.assign_add(jnp.ones((600, 600)))

        self.step = step

    def train(self, steps):
        for _ in range(steps):
            self.step(next(self.position))
            self.checkpoint.epoch += 1

    def seen(self):
        """Returns what must not depend on how often the program was stopped."""
        return plain(
            {
                "w": self.w.numpy(),
                "large": [self.large.numpy().min(), self.large.numpy().max()],
                "iterations": self.optimizer.iterations.numpy(),
                "total": self.total.result(),
                "mean": self.mean.read_value(),
                "epoch": self.checkpoint.epoch,
            }
        )


def train_and_save(s, w, directory, steps, how="sync"):
    """Goes on from what is in a directory, trains and saves."""
    program = Program(s)
    manager = uni.train.CheckpointManager(program.checkpoint, directory, 2)
    found = manager.restore_or_initialize()
    program.train(steps)
    saved = manager.save(options=ASYNC if how == "async" else None)
    manager.sync()
    names = [os.path.basename(p) for p in manager.checkpoints]
    return [found, saved, names, program.seen()]


def save_often(s, w, directory, times=4):
    """Saves in the background while steps are taken, and keeps the newest two."""
    program = Program(s)
    manager = uni.train.CheckpointManager(program.checkpoint, directory, 2)
    for _ in range(times):
        program.train(2)
        manager.save(options=ASYNC)
    manager.sync()
    return [os.path.basename(p) for p in manager.checkpoints]


def save_on_some(s, w, path, what):
    """Worker 0 saves, and worker 1 does something else."""
    with s.scope():
        v = uni.Variable(1.0)
    checkpoint = uni.train.Checkpoint(v=v)
    begun = time.monotonic()

    def act():
        if w == 0:
            return checkpoint.save(path)
        if what == "sleeps":
            time.sleep(5.0)
            return checkpoint.save(path)
        if what == "restores":
            return checkpoint.restore(None) and None
        return s.reduce("SUM", s.run(lambda: context().all_reduce("SUM", v + 0)), None)

    told = attempt(act)
    return [*told, time.monotonic() - begun, os.path.exists(f"{path}-1")]


def save_different_objects(s, w, path):
    given = {"v": uni.Variable(1.0)} | ({"extra": 3} if w else {})
    checkpoint = uni.train.Checkpoint(**given)
    return [attempt(lambda: checkpoint.save(path)), os.path.exists(f"{path}-1")]


def save_where_it_cannot(s, w, path):
    checkpoint = uni.train.Checkpoint(v=uni.Variable(1.0))
    sync = attempt(lambda: checkpoint.save(path))
    checkpoint.write(path + "-elsewhere")
    checkpoint.save(path, options=ASYNC)
    background = attempt(checkpoint.sync)
    return [sync, background, int(checkpoint.save_counter.numpy())]


def save_to_own_directories(s, w, directory):
    """TensorFlow's way: the chief writes to the directory, others to one to remove."""
    here = pathlib.Path(directory)
    own = here if w == 0 else here / f"workertemp_{w}"
    with s.scope():
        v = uni.Variable(2.0)
    checkpoint = uni.train.Checkpoint(v=v)
    manager = uni.train.CheckpointManager(checkpoint, own, max_to_keep=1)
    for _ in range(2):
        manager.save()
    if w:
        own.rmdir()
    v.assign(0.0)
    checkpoint.restore(uni.train.latest_checkpoint(directory)).assert_consumed()
    return [float(v.numpy()), sorted(p.name for p in here.iterdir())]


def restore_from_own_directories(s, w, directory):
    """A checkpoint that only the chief sees."""
    checkpoint = uni.train.Checkpoint(v=uni.Variable(1.0))
    path = checkpoint.save(f"{directory}/c")
    seen = path if w == 0 else f"{directory}/not-here-1"
    latest = path if w == 0 else None
    manager = uni.train.CheckpointManager(checkpoint, f"{directory}/{w}", 1)
    manager.save()
    return [
        attempt(lambda: checkpoint.restore(seen) and None),
        attempt(lambda: checkpoint.restore(latest) and None),
        attempt(manager.restore_or_initialize),
        attempt(lambda: checkpoint.restore(path) and "fine"),
    ]


def positions(s, w, directory, how, restore=False):
    """Datasets of which each worker has its own part."""
    here = pathlib.Path(directory)
    if how == "function":

        def make(c):
            first = 100 * c.input_pipeline_id
            return uni.data.Dataset.range(first, first + 50).batch(2 + w)

        it = iter(s.distribute_datasets_from_function(make))
    else:
        names = [str(here / f"{i}.txt") for i in range(4)]
        data = uni.data.TextLineDataset(names).batch(4)
        it = iter(s.experimental_distribute_dataset(data))
    random = np.random.default_rng(w)
    checkpoint = uni.train.Checkpoint(it=it, random=random)
    path = str(here / how)
    if restore:
        checkpoint.read(path).assert_consumed()
    else:
        for _ in range(2):
            next(it)
        random.random(w)
        checkpoint.write(path)
    element = s.experimental_local_results(next(it))[0]
    return [str(np.asarray(element).tolist()), float(random.random())]


def export_models(s, w, directory):
    """All save to one place, then each to its own; what they load computes together."""
    with s.scope():
        model = uni.Module()
        weight = model.w = uni.Variable(jnp.arange(3.0))
    spec = uni.TensorSpec([3], jnp.float32)
    model.times = uni.function(lambda x: x * weight, input_signature=[spec])
    places = [f"{directory}/shared", f"{directory}/own-{w}"]
    found = []
    for path in places:
        for _ in range(3):
            uni.saved_model.save(model, path)
            with s.scope():
                loaded = uni.saved_model.load(path)
            parts = s.run(lambda loaded=loaded: loaded.times(jnp.ones(3)))
            found.append(plain(s.reduce("SUM", parts, axis=None)))
    return found


def load_tensors(s, w, paths):
    """Loads the file of this worker, and tells how it went and what the copies are."""
    with s.scope():
        v = uni.Variable(jnp.zeros((4, 3)), name="v")
    told = attempt(lambda: {**uni.train.load_safetensors(paths[w], [v]).loaded})
    return [told, [plain(x) for x in v.values] if hasattr(v, "values") else plain(v)]
