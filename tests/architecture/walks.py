"""Runs small programs under a profiler and counts the calls between modules.

A *walk* is a small piece of a user's program. Only calls of the library's functions are
counted. The direction is checked only for calls from one module of the library to
another, because a user's function may call the highest layer.
"""

import collections
import contextlib
import dataclasses
import gc
import importlib
import json
import os
import sys

import jax.numpy as jnp
import numpy as np

import unisono as uni
from tests.architecture import sources

INTERNALS = str(sources.PACKAGE / "_src") + "/"


@dataclasses.dataclass
class Seen:
    """Holds the calls that a profiler saw.

    Attributes:
        calls: how often each function of the library was called.
        edges: the calls from one module to another, by the two modules.
    """

    calls: collections.Counter
    edges: dict

    @property
    def count(self):
        """The number of calls."""
        return sum(self.calls.values())

    @property
    def modules(self):
        """The modules that were entered."""
        return {module for module, _ in self.calls}


def module_of(frame):
    """Returns the path of the library's module that a frame belongs to, or None."""
    path = frame.f_code.co_filename
    return path.removeprefix(INTERNALS) if path.startswith(INTERNALS) else None


def declarer_of(frame):
    """Returns the module that declares the function of a frame.

    For a method it is the module of the first base class that has it: a cursor may read
    from another cursor, whichever room defines that one.
    """
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] != "self":
        return module_of(frame)
    for base in reversed(type(frame.f_locals["self"]).__mro__):
        declared = vars(base).get(code.co_name)
        declared = getattr(declared, "fget", declared)
        declared = getattr(declared, "__wrapped__", declared)
        path = getattr(getattr(declared, "__code__", None), "co_filename", "")
        if path.startswith(INTERNALS):
            return path.removeprefix(INTERNALS)
    return module_of(frame)


def is_protocol(frame):
    """Whether the function belongs to a protocol, such as `__iter__`."""
    name = frame.f_code.co_name
    return name.startswith("__") and name.endswith("__")


@contextlib.contextmanager
def watching():
    """Yields the `Seen` of a block, which collects its calls."""
    seen = Seen(collections.Counter(), {})

    def notice(frame, event, _):
        if event != "call" or (module := module_of(frame)) is None:
            return
        name = frame.f_code.co_qualname
        seen.calls[module, name] += 1
        caller = None if frame.f_back is None else module_of(frame.f_back)
        if caller in (None, module) or is_protocol(frame):
            return
        declarer = declarer_of(frame)
        if caller != declarer:
            edge = f"{frame.f_back.f_code.co_qualname} -> {name}"
            seen.edges.setdefault((caller, declarer), set()).add(edge)

    # A collection of garbage calls what waits for the end of objects, at any place.
    was_enabled = gc.isenabled()
    gc.disable()
    previous = sys.getprofile()
    sys.setprofile(notice)
    try:
        yield seen
    finally:
        sys.setprofile(previous)
        if was_enabled:
            gc.enable()


def steady(walk):
    """Returns the calls of the third run of a walk, which later runs repeat."""
    walk()
    walk()
    with watching() as seen:
        walk()
    return seen


def mirrored(replicas):
    """Returns a strategy with this number of virtual devices."""
    return uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def train(strategy):
    """Runs, assigns, merges, reduces and gathers, in eager and in compiled code."""
    with strategy.scope():
        total = uni.Variable(
            jnp.zeros(2), name="m", aggregation=uni.VariableAggregation.MEAN
        )
        counter = uni.Variable(
            0.0,
            name="c",
            synchronization=uni.VariableSynchronization.ON_READ,
            aggregation=uni.VariableAggregation.SUM,
        )

    def merge_fn(strategy, value):
        return strategy.reduce("SUM", value, axis=None)

    def replica_fn(x):
        context = uni.distribute.get_replica_context()
        counter.assign_add(1.0)
        total.assign_add(context.all_reduce("SUM", x))
        return context.merge_call(merge_fn, args=(x + total,))

    values = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.full(2, float(context.replica_id_in_sync_group))
    )

    def step(values):
        return strategy.reduce("MEAN", strategy.run(replica_fn, args=(values,)), axis=0)

    step(values)
    uni.function(step)(values)
    total.assign(total + 1.0)
    strategy.extended.update(total, lambda v: v.assign_sub(jnp.ones(2)))
    strategy.gather(values, axis=0)
    strategy.experimental_local_results(values)
    return counter.numpy()


def feed(strategy):
    """Reads a distributed dataset of several stages, and saves its position."""
    rows = {"x": np.arange(24.0).reshape(12, 2), "y": np.arange(12)}
    dataset = uni.data.Dataset.from_tensor_slices(rows)
    dataset = dataset.map(lambda r: r | {"z": r["y"] + 1}).shuffle(4, seed=1).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(dataset.prefetch(1)))
    next(iterator)
    iterator.set_state(iterator.get_state())
    return list(iterator)


def save(strategy, directory):
    """Saves and restores variables and an optimizer."""
    import optax

    with strategy.scope():
        weights = uni.Variable(jnp.ones(3), name="w")
        optimizer = uni.optimizers.Optimizer(optax.adam(0.1), [weights])
    checkpoint = uni.train.Checkpoint(weights=weights, optimizer=optimizer)
    path = checkpoint.save(directory / "c")
    checkpoint.restore(path).assert_consumed()


def differentiate(strategy):
    """Computes gradients by a tape, of variables of unisono and of Keras."""
    import keras

    with strategy.scope():
        weight = uni.Variable(jnp.ones(2))
        dense = keras.layers.Dense(1)
        dense.build((None, 2))

    def replica_fn():
        with uni.GradientTape() as tape:
            loss = jnp.sum(dense(weight.value()[None]))
        return tape.gradient(loss, [weight, dense.kernel])

    strategy.run(replica_fn)
    strategy.run(uni.function(replica_fn))
    with uni.GradientTape() as tape:
        loss = jnp.sum(weight * weight)
    return tape.gradient(loss, weight)


def fit(strategy):
    """Trains a model of Keras, of which one was made outside the scope."""
    import keras

    rows = np.zeros((8, 2), np.float32)
    outside = keras.Sequential([keras.layers.Dense(1)])
    outside.build((None, 2))
    strategy.adopt(outside)
    with strategy.scope():
        model = keras.Sequential([outside, keras.layers.Dense(1)])
        model.compile("adam", "mse")
    model.fit(rows, rows[:, :1], batch_size=4, verbose=0)
    return model.evaluate(rows, rows[:, :1], verbose=0)


def make_cluster():
    """Returns a strategy with servers and workers that run in this thread."""
    cluster = uni.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1", "c:1"]})
    return uni.distribute.ParameterServerStrategy(
        uni.distribute.cluster_resolver.SimpleClusterResolver(cluster),
        # In this thread, which the profiler watches.
        carrier=uni.distribute.coordinator.ThreadCarrier(synchronous=True),
    )


def make_closure(strategy):
    """Returns a function that schedules a function and waits for its result."""
    coordinator = uni.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = uni.Variable(jnp.zeros(2))
    add = uni.function(total.assign_add)
    return lambda: coordinator.schedule(add, args=(jnp.ones(2),)).fetch()


def schedule(directory):
    """Lets servers update variables, by closures and by Keras, and saves them."""
    import keras
    import optax

    strategy = make_cluster()
    coordinator = uni.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        table = uni.Variable(jnp.ones((4, 2)))
        optimizer = uni.optimizers.Optimizer(optax.adagrad(0.1), [table])
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("adam", "mse")

    @uni.function
    def step():
        with uni.GradientTape() as tape:
            loss = jnp.sum(uni.nn.embedding_lookup(table, jnp.array([1, 2])))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        return loss

    coordinator.schedule(step).fetch()
    step()
    rows = np.zeros((8, 2), np.float32)
    model.fit(rows, rows[:, :1], batch_size=4, steps_per_epoch=2, verbose=0)
    checkpoint = uni.train.Checkpoint(table=table, optimizer=optimizer)
    checkpoint.restore(checkpoint.save(directory / "s"))
    strategy.shutdown()


def tapes():
    """Returns the walks of gradient tapes, by name."""
    strategy, alone = mirrored(2), uni.Variable(1.0)
    with strategy.scope():
        weight = uni.Variable(1.0)

    def differentiate(variable):
        with uni.GradientTape() as tape:
            loss = variable * variable
        return tape.gradient(loss, variable)

    return {
        "tape": lambda: differentiate(alone),
        "run with a tape": lambda: strategy.run(lambda: differentiate(weight)),
    }


def everyday():
    """Returns the walks that users repeat, by name, as functions without arguments."""
    strategy, one = mirrored(2), jnp.ones(2)
    with strategy.scope():
        mean = uni.Variable(jnp.zeros(2), aggregation=uni.VariableAggregation.MEAN)
        number = uni.Variable(0.0, aggregation=uni.VariableAggregation.MEAN)
    made: list[object] = [None]

    @uni.function
    def step(x):
        new = strategy.run(lambda x: mean.assign_add(x), args=(x,))
        return strategy.reduce("MEAN", new, axis=None)

    replica_step = uni.function(lambda: mean.assign_add(one))

    def all_reduce():
        return uni.distribute.get_replica_context().all_reduce("SUM", one)

    def create():
        made[0] = uni.Variable(one)

    def inside(fn):
        def run():
            with strategy.scope():
                fn()

        return run

    rows = np.zeros((64, 4), np.float32)
    dataset = uni.data.Dataset.from_tensor_slices(rows).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    return {
        "compiled step": lambda: step(one),
        "run of a compiled function": lambda: strategy.run(replica_step),
        "eager run of nothing": lambda: strategy.run(lambda: None),
        "eager assign_add": lambda: strategy.run(lambda: mean.assign_add(one)),
        "eager assign_add of a number": lambda: strategy.run(
            lambda: number.assign_add(1.0)
        ),
        "eager all_reduce": lambda: strategy.run(all_reduce),
        "scope": inside(lambda: None),
        "scope with a new variable": inside(create),
        "next batch of rows": lambda: next(iterator),
        "closure": make_closure(make_cluster()),
    }


def loaded(library):
    """Returns the walks that a library changes, with the library loaded."""
    importlib.import_module(library)
    return {f"{name}, {library} loaded": walk for name, walk in tapes().items()}


def count(walks):
    """Returns the calls, the modules and the most frequent calls of each walk."""
    return {
        name: [seen.count, sorted(seen.modules), seen.calls.most_common(10)]
        for name, walk in walks.items()
        for seen in [steady(walk)]
    }


if __name__ == "__main__":
    # Run in a new process, because libraries that other tests loaded add calls.
    uni.config.set_virtual_devices(2)
    found = count(everyday() | tapes())
    # Then with libraries, of which a program that has not loaded them sees nothing.
    os.environ.setdefault("KERAS_BACKEND", "jax")
    found |= count(loaded("keras"))
    print(json.dumps(found))
