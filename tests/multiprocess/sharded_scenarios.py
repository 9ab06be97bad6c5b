"""What workers do whose variables are split over all of them.

As in `scenarios`, a `MirroredStrategy` of as many replicas gives the numbers that they
must give together.
"""

import copy
import itertools
import os
import re

import jax.numpy as jnp
import numpy as np
import optax

import unisono as tf
from tests.multiprocess.scenarios import attempt, plain
from unisono import errors
from unisono._src.saving.format import part_files

SUM = tf.distribute.ReduceOp.SUM


def make_model(s, seed=0, width=16):
    """Returns two large weights, a small one and an odd one, and their optimizer."""
    rng = np.random.default_rng(seed)
    with s.scope():
        first = tf.Variable(lambda: jnp.full((8, width), 0.1), name="first")
        second = tf.Variable(rng.normal(size=(width, 4)).astype("f4"), name="second")
        bias = tf.Variable(jnp.zeros(4), name="bias")
        odd = tf.Variable(rng.normal(size=(7, 9)).astype("f4"), name="odd")
        weights = [first, second, bias, odd]
        optimizer = tf.optimizers.Optimizer(
            optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.05)), weights
        )
    return weights, optimizer


def make_step(s, weights, optimizer):
    first, second, bias, odd = weights

    @tf.function
    def step(x):
        def replica(x):
            with tf.GradientTape() as tape:
                hidden = jnp.tanh(x @ first)
                out = hidden @ second + bias
                loss = jnp.mean(out**2) + 0.01 * jnp.sum(odd * odd)
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return loss

        return s.reduce("MEAN", s.run(replica, args=(x,)), axis=None)

    return step


def batches(s, steps):
    """Yields batches whose rows go to the replicas in order."""
    rng = np.random.default_rng(3)
    for _ in range(steps):
        rows = rng.normal(size=(s.num_replicas_in_sync, 2, 8)).astype("f4")
        yield s.experimental_distribute_values_from_function(
            lambda c, rows=rows: jnp.asarray(rows[c.replica_id_in_sync_group])
        )


def train_in_parts(s, w, steps=3):
    weights, optimizer = make_model(s)
    step = make_step(s, weights, optimizer)
    losses = [float(step(x)) for x in batches(s, steps)]
    return plain([losses, [v.numpy() for v in weights]])


def make_variable(s, value, **options):
    with s.scope():
        return tf.Variable(value, **options)


def table(rows=8, columns=6):
    return jnp.arange(rows * columns, dtype=jnp.float32).reshape(rows, columns)


def first_values(s, w):
    """First values by each way to give them; worker 0's where they differ."""
    here = float(w)
    made = [
        make_variable(s, lambda: jnp.full((8, 6), 2.0)),
        make_variable(s, lambda: jnp.full((8, 6), here)),
        make_variable(s, np.full((8, 6), here)),
        make_variable(s, jnp.full((6, 8), here)),
        make_variable(s, lambda: np.full((8, 6), here)),
        make_variable(s, np.arange(48).reshape(8, 6) % 2 == 0),
        make_variable(s, jnp.arange(48, dtype=jnp.bfloat16)),
        make_variable(s, jnp.arange(48, dtype=jnp.int8).reshape(4, 4, 3)),
        make_variable(s, jnp.arange(48, dtype=jnp.complex64)),
        make_variable(s, lambda: tf.random.stateless_normal((8, 6), seed=[1, 2])),
    ]
    kept = {}

    @tf.function
    def build(x):
        if "v" not in kept:
            kept["v"] = tf.Variable(x + jnp.ones((8, 6)), name="built")
        return jnp.sum(kept["v"].value())

    with s.scope():
        total = float(build(jnp.asarray(here)))
    made.append(kept["v"])
    texts = [str(v.state_cell.split) for v in made]
    return plain([[np.asarray(v.numpy(), "c8").real for v in made], total, texts])


def changes(s, w, is_even=True):
    """The value after each way to change a variable eagerly, and some ways to read."""
    mean = tf.VariableAggregation.MEAN
    v = make_variable(s, table(), aggregation=mean, name="v")
    found = []

    def note():
        found.append(np.asarray(v))

    v.assign(v + 1.0)
    note()
    given = np.full((8, 6), 3.0, "f4")
    told = v.assign(given)
    given[:] = 0.0
    note()
    found.append(np.asarray(told))
    found.append(np.asarray(v.assign_add(table())))
    v.assign_sub(jnp.ones((8, 6)))
    note()
    v[2:4, 1].assign(jnp.full(2, -5.0))
    note()
    rows = tf.IndexedSlices(jnp.ones((2, 6)), jnp.asarray([0, 7]))
    v.scatter_add(rows)
    note()
    s.run(lambda: v.assign_add(jnp.ones((8, 6)) * _number()))
    note()
    if is_even:
        # Each replica's read is a meeting, so workers must have as many replicas.
        by = (jnp.ones((8, 6)),)
        s.extended.update(v, lambda copy, x: copy.assign_sub(x), args=by)
        note()
        inside = s.run(lambda: v.value() * 1.0)
        found.append(s.experimental_local_results(inside)[0])
    twin = copy.deepcopy(v)
    found.append(twin.numpy())
    other = make_variable(s, lambda: jnp.zeros((8, 6)))
    other.assign(v)
    found.append(other.numpy())

    @tf.function
    def outside(scale):
        v.assign(v * scale)
        return v.read_value() + 1.0, jnp.sum(v)

    whole, total = outside(2.0)
    found += [whole, total]
    note()
    found += [v[3], v.sparse_read(jnp.asarray([1])), np.sum(v), next(iter(v))]
    return plain([np.asarray(x) for x in found])


def _number():
    context = tf.distribute.get_replica_context()
    return jnp.asarray(context.replica_id_in_sync_group, jnp.float32) + 1.0


def looks_by_one_worker(s, w):
    """What worker 0 shows of a variable while the others do nothing with it."""
    v = make_variable(s, table(), name="v")
    shown = None
    if w == 0:
        shown = [
            repr(v),
            str(v),
            f"{v}",
            [list(x.shape) for x in s.experimental_local_results(v)],
            v.local_part,
            list(v.shape),
            str(s.describe([v])),
        ]
    return plain([shown, v.numpy()])


def different_values(s, w):
    """Workers that assign different values all get an error, and keep the old one."""
    v = make_variable(s, table(), name="v")
    return [attempt(lambda: v.assign(jnp.full((8, 6), float(w)))), plain(v.numpy())]


def read_alone(s, w, how="step"):
    """Worker 0 reads the whole value; the others take a step, or end."""
    weights, optimizer = make_model(s)
    step = make_step(s, weights, optimizer)
    given = list(batches(s, 6))
    losses = [float(step(x)) for x in given[:3]]
    assert len(losses) == 3
    if w == 0:
        return attempt(lambda: weights[0].numpy())
    if how == "step":
        return attempt(lambda: [float(step(x)) for x in given[3:]])
    return attempt(lambda: weights[1].numpy())


# So wide that the first two weights are read part after part.
WIDE = 1 << 16


def save_in_parts(s, w, directory, how="sync", width=WIDE):
    """Trains, saves, and trains on; returns the path, and the losses after it."""
    weights, optimizer = make_model(s, width=width)
    step = make_step(s, weights, optimizer)
    given = list(batches(s, 4))
    for x in given[:2]:
        step(x)
    checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer, epoch=3)
    options = tf.train.CheckpointOptions(enable_async=how == "async")
    path = checkpoint.save(f"{directory}/ckpt", options)
    losses = [float(step(x)) for x in given[2:]]
    checkpoint.sync()
    return [path, losses]


def restore_in_parts(s, w, path, width=WIDE):
    """Restores into other weights, and trains on; returns the losses."""
    weights, optimizer = make_model(s, seed=1, width=width)
    step = make_step(s, weights, optimizer)
    checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer, epoch=0)
    checkpoint.restore(path).assert_consumed()
    losses = [float(step(x)) for x in list(batches(s, 4))[2:]]
    return plain([losses, checkpoint.epoch])


def save_apart(s, w, directory):
    """Each worker gives a directory of its own; then all give one."""
    v = make_variable(s, table(), name="v")
    checkpoint = tf.train.Checkpoint(v=v)
    own = f"{directory}/worker{w}"
    told = attempt(lambda: checkpoint.write(f"{own}/c"))
    left = sorted(os.listdir(own)) if os.path.isdir(own) else []
    return [told, left, attempt(lambda: checkpoint.write(f"{directory}/c"))[0]]


def restore_damaged(s, w, path, victim, width=WIDE):
    """A worker fails in the middle of a restore; returns whether anything changed."""
    weights, optimizer = make_model(s, seed=1, width=width)
    checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer)
    before = [v.local_part for v in [*weights, *optimizer.variables]]
    read, count = part_files.read, itertools.count()

    def fail(*args):
        if next(count) == 2:
            raise errors.DataLossError("The disk is gone.")
        return read(*args)

    if w == victim:
        part_files.read = fail
    try:
        told = attempt(lambda: checkpoint.restore(path))
    finally:
        part_files.read = read
    after = [v.local_part for v in [*weights, *optimizer.variables]]
    pairs = zip(before, after, strict=True)
    same = all(np.array_equal(x, y) for x, y in pairs)
    checkpoint.restore(path).expect_partial()
    return plain([told, same, float(jnp.sum(jnp.abs(weights[0].local_part)))])


def read_by_one(s, w):
    """Worker 0 alone reads a whole variable, of which it has all parts."""
    v = make_variable(s, table(), name="v")
    return float(v.numpy().sum()) if w == 0 else None


def find_groups(s, w):
    """Returns the replicas of each collective of a step, with what it is."""
    weights, optimizer = make_model(s)
    step = make_step(s, weights, optimizer)
    (x,) = batches(s, 1)
    text = step.lowered(x).compile().as_text()
    found = re.findall(r"= \(?(\S+).* (all-gather|reduce-scatter|all-reduce)\(.*", text)
    lines = re.findall(r".* (?:all-gather|reduce-scatter|all-reduce)\(.*", text)
    groups = [_replica_groups(line) for line in lines]
    return [[kind, shape, g] for (shape, kind), g in zip(found, groups, strict=True)]


def _replica_groups(line):
    """Returns the groups of a collective, which XLA writes in three ways."""
    plain_form = re.search(r"replica_groups=\{(\{[\d,{}]*\})\}", line)
    if plain_form:
        inner = re.findall(r"\{([\d,]*)\}", plain_form.group(1))
        return [[int(i) for i in g.split(",")] for g in inner]
    by_axes = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", line)
    if by_axes:
        return _groups_of_mesh(*by_axes.groups())
    short = re.search(
        r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line
    )
    shape, sides, order = (
        [int(i) for i in x.split(",")] if x else None for x in short.groups()
    )
    ids = np.arange(np.prod(sides)).reshape(sides)
    return (ids.transpose(order) if order else ids).reshape(shape).tolist()


def _groups_of_mesh(axes, chosen):
    """Returns the groups along some axes of a mesh, such as 'group'=2,'replica'=2."""
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", axes)}
    names, along = list(sizes), re.findall(r"'(\w+)'", chosen)
    ids = np.arange(np.prod(list(sizes.values()))).reshape(list(sizes.values()))
    last = list(range(len(names) - len(along), len(names)))
    ids = np.moveaxis(ids, [names.index(name) for name in along], last)
    return ids.reshape(-1, np.prod([sizes[name] for name in along])).tolist()


class Scale(tf.Module):
    """A model with a weight that is split, to export."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(table(), name="weight")

    @tf.function(input_signature=[tf.TensorSpec([], "float32")])
    def __call__(self, x):
        return jnp.sum(self.weight.value() * x)


def more_saving(s, w, directory):
    """A manager that keeps two checkpoints, and an exported model."""
    v = make_variable(s, table(), name="v")
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=v), directory, 2)
    for _ in range(3):
        v.assign_add(jnp.ones((8, 6)))
        manager.save()
    v.assign(jnp.zeros((8, 6)))
    manager.restore_or_initialize()
    with s.scope():
        model = Scale()
    tf.saved_model.save(model, f"{directory}/model")
    loaded = tf.saved_model.load(f"{directory}/model")
    names = sorted(os.path.basename(p) for p in manager.checkpoints)
    return plain([v.numpy(), names, float(loaded(2.0))])
