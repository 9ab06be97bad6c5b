"""Datasets of several workers: scenarios like those of `scenarios`."""

import glob
import threading
import time

import numpy as np

import unisono as tf
from tests.multiprocess.scenarios import attempt, local, plain

Dataset = tf.data.Dataset


def _with_policy(dataset, name):
    options = tf.data.Options()
    policy = getattr(tf.data.experimental.AutoShardPolicy, name)
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _steps(s, dataset):
    return [local(s, x) for x in s.experimental_distribute_dataset(dataset)]


def split(s, w, cases, policy="AUTO"):
    """Parts of ranges in batches: a list of (examples, batch size)."""
    made = [_with_policy(Dataset.range(n).batch(b), policy) for n, b in cases]
    return [_steps(s, dataset) for dataset in made]


def regress(s, w):
    """Losses and the weight of a regression over uneven batches."""
    x = np.arange(17, dtype=np.float32)
    dataset = Dataset.from_tensor_slices((x, 3 * x)).batch(7)
    with s.scope():
        weight = tf.Variable(0.0)

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((weight * x - y) ** 2) / 700.0
        return loss, tape.gradient(loss, weight)

    @tf.function
    def step(batch):
        loss, gradient = s.run(replica, args=batch)
        weight.assign_sub(0.1 * s.reduce("SUM", gradient, axis=None))
        return s.reduce("SUM", loss, axis=None)

    losses = [float(step(b)) for b in s.experimental_distribute_dataset(dataset)]
    return [losses, float(weight.numpy())]


def own_datasets(s, w):
    """Elements of a dataset that each worker makes, two rows for a replica."""

    def make(context):
        number, index = context.num_input_pipelines, context.input_pipeline_id
        return Dataset.range(12).shard(number, index).batch(2)

    return [local(s, x) for x in s.distribute_datasets_from_function(make)]


def files_without_files(s, w):
    return attempt(lambda: _steps(s, _with_policy(Dataset.range(8).batch(4), "FILE")))


def lines(s, w, paths, batch=2):
    found = s.experimental_distribute_dataset(
        tf.data.TextLineDataset(paths).batch(batch)
    )
    texts = [
        [[line.decode() for line in part] for part in s.experimental_local_results(x)]
        for x in found
    ]
    return [texts, str(found.describe().rows)]


def _numbers(strategy, value):
    """The numbers that each local replica has, which may be text."""
    parts = strategy.experimental_local_results(value)
    return [[int(x) for x in np.ravel(part)] for part in parts]


def _number(line):
    return np.int64(int(line))


def _lines_of(names):
    """The usual form: a dataset of names, of which several are read in turn."""
    return names.interleave(tf.data.TextLineDataset, cycle_length=2).map(_number)


def _generated(count):
    spec = tf.TensorSpec((), np.int64)
    return Dataset.from_generator(lambda: iter(range(count)), output_signature=spec)


def _same(x):
    return x


def _datasets(folder):
    """Datasets of numbers: of files, where file i holds 10 i, 10 i + 1 and so on."""
    paths = [f"{folder}/part-{i}" for i in range(3)]
    hint = tf.data.experimental.SHARD_HINT
    marked = Dataset.range(18).shard(hint, hint)
    listed = Dataset.list_files(f"{folder}/part-*", shuffle=False)
    lines = tf.data.TextLineDataset(paths)
    return {
        "listed": _lines_of(listed).batch(4),
        "shuffled names": _lines_of(Dataset.list_files(f"{folder}/part-*")).batch(4),
        "names": _lines_of(Dataset.from_tensor_slices(paths)).batch(4),
        "names in turn": _lines_of(listed.repeat(2)).batch(4),
        "mapped names": _lines_of(listed.map(_same)).batch(4),
        "lines": lines.map(_number).batch(4),
        "lines, size unseen": lines.batch(4).map(lambda x: np.vectorize(int)(x)),
        "full lines": lines.map(_number).batch(4, drop_remainder=True),
        "range": Dataset.range(10).batch(4),
        "odd": Dataset.range(9).batch(3),
        "small": Dataset.range(7).batch(5),
        "full": Dataset.range(11).batch(4, drop_remainder=True),
        "full twice": Dataset.range(11).batch(4, drop_remainder=True).repeat(2),
        "repeated": Dataset.range(7).batch(4).repeat(3),
        "taken": Dataset.range(30).shuffle(5).batch(4).skip(1).take(3).prefetch(1),
        "size unseen": Dataset.range(10).batch(4).map(_same),
        "marked": marked.batch(4),
        "marked, full": marked.batch(4, drop_remainder=True),
        "marked, size unseen": marked.batch(4).map(_same),
        "arrays": Dataset.from_tensor_slices(np.arange(13)).batch(4),
        "generated": _generated(10).batch(4),
        "loader": [np.arange(4), np.arange(4, 8), np.arange(8, 10)],
        "batches": np.arange(12).reshape(3, 4),
    }


def described(s, w, folder, policy, names):
    """What descriptions say of datasets, and what is read of them."""
    found = {}
    for name, dataset in _datasets(folder).items():
        if name not in names:
            continue
        if hasattr(dataset, "with_options"):
            dataset = _with_policy(dataset, policy)
        made = s.experimental_distribute_dataset(dataset)
        told = made.describe()
        steps = [_numbers(s, x) for x in made]
        rows = [[r.worker, r.reads, r.count, r.parts] for r in told.rows]
        found[name] = [rows, told.rule, told.remainder, int(made.cardinality), steps]
    return found


def described_elements(s, w, sizes):
    """The same of datasets that a function made: elements per worker, batch size."""
    found = []
    for lengths, size, drop in sizes:

        def make(c, lengths=lengths, size=size, drop=drop):
            own = Dataset.range(lengths[c.input_pipeline_id])
            return own.batch(size, drop_remainder=drop)

        made = s.distribute_datasets_from_function(make)
        told = made.describe()
        steps = [_numbers(s, x) for x in made]
        rows = [[r.worker, r.reads, r.count, r.parts] for r in told.rows]
        found.append([rows, told.rule, told.remainder, steps])
    return found


def too_few_files(s, w, path):
    return attempt(lambda: lines(s, w, [path]))


def kinds(s, w):
    found = s.experimental_distribute_dataset(Dataset.range(8).batch(4))
    return [type(next(iter(found))).__name__, str(found.element_spec)]


def from_function(s, w, how):
    """`sharded` by hand, `uneven` lengths, or the same with `static` shapes."""
    seen = []

    def make(c):
        seen.append(
            [c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync]
        )
        if how == "sharded":
            own = Dataset.range(8).shard(c.num_input_pipelines, c.input_pipeline_id)
            return own.batch(c.get_per_replica_batch_size(4))
        length = 2 + 2 * c.input_pipeline_id
        return Dataset.range(length).batch(2, drop_remainder=how == "static")

    steps = [local(s, x) for x in s.distribute_datasets_from_function(make)]
    return [steps, seen]


def trained(s, w, policy, stop=None, state=None):
    """Sums what a compiled step sees: every example once, whoever has it."""
    with s.scope():
        total = tf.Variable(
            np.zeros(40, "f4"),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    @tf.function
    def step(x):
        s.run(lambda x: total.assign_add(_counts(x)), args=(x,))

    # No seed: workers that read everything must still read the same order.
    dataset = Dataset.range(38).shuffle(20).batch(8)
    iterator = iter(s.experimental_distribute_dataset(_with_policy(dataset, policy)))
    if state is not None:
        iterator.set_state(state)
    count = 0
    for x in iterator:
        step(x)
        count += 1
        if count == stop:
            break
    saved = iterator.get_state()
    iterator.close()
    return [count, plain(total.numpy()), saved]


def dealt(s, w, how, folder):
    """What two epochs give one worker of a pipeline that it shares with another."""
    hint = tf.data.experimental.SHARD_HINT
    names = f"{folder}/*"

    def numbers(lines):
        return np.array([int(line) for line in np.ravel(lines)])

    dataset, policy = {
        "mapped": lambda: (
            tf.data.TextLineDataset(sorted(glob.glob(names))).batch(4).map(numbers),
            "AUTO",
        ),
        "shuffled names": lambda: (
            Dataset.list_files(names)
            .interleave(tf.data.TextLineDataset, cycle_length=2)
            .batch(4)
            .map(numbers),
            "AUTO",
        ),
        "shuffled hint": lambda: (
            Dataset.range(14).shuffle(14).shard(hint, hint).batch(4),
            "HINT",
        ),
        "mapped hint": lambda: (
            Dataset.range(14).shard(hint, hint).batch(4).map(lambda x: x),
            "HINT",
        ),
    }[how]()
    found = s.experimental_distribute_dataset(_with_policy(dataset, policy))
    return [[local(s, x) for x in found] for _ in range(2)]


def shuffled_within(s, w, how):
    """All examples that two epochs give, of pipelines that shuffle in a function."""
    captured = Dataset.range(10).shuffle(10)

    def parts(i):
        return Dataset.range(10).map(lambda x: x + 10 * i).shuffle(10)

    dataset = {
        "flat_map": lambda: Dataset.range(4).flat_map(parts),
        "interleave": lambda: Dataset.range(4).interleave(parts, cycle_length=3),
        "window": lambda: (
            Dataset.range(40).window(10).flat_map(lambda part: part.shuffle(10))
        ),
        "group": lambda: Dataset.range(40).group_by_window(
            lambda x: x % 3, lambda key, group: group.shuffle(20), 7
        ),
        "captured": lambda: Dataset.range(4).flat_map(
            lambda i: captured.map(lambda x: x + 10 * i)
        ),
    }[how]()
    found = s.experimental_distribute_dataset(dataset.batch(8))
    return [[plain(s.gather(x, axis=0)) for x in found] for _ in range(2)]


def _counts(x):
    return (x[None, :] == np.arange(40)[:, None]).sum(1).astype("f4")


def endless(s, w, steps=20):
    """Batches of something endless need no agreement."""

    def make(c):
        return Dataset.range(3 + c.input_pipeline_id).repeat().batch(4)

    found = iter(s.distribute_datasets_from_function(make))
    last = [local(s, next(found)) for _ in range(steps)][-1]
    found.close()
    return last


def returned(s, w, after):
    """Goes back to a position in the middle, from another place on each worker."""

    def make(c):
        # The slower worker reads less far ahead.
        def pause(x):
            time.sleep(0.02 * w)
            return x

        return Dataset.range(10 + 4 * w).map(pause).batch(2)

    iterator = iter(s.distribute_datasets_from_function(make))
    first = [local(s, next(iterator)) for _ in range(2)]
    state = iterator.get_state()
    for _ in range(after):
        next(iterator)
    iterator.set_state(state)
    rest = [local(s, x) for x in iterator]
    iterator.close()
    return first + rest


def left_waiting(s, w, how):
    """One worker reads, the other does not: seconds until the first can leave."""

    def make(c):
        return Dataset.range(4 + w).map(lambda x: x).batch(2)

    if how == "function":
        iterator = iter(s.distribute_datasets_from_function(make))
    else:
        iterator = iter(s.experimental_distribute_dataset(_generated(4).batch(2)))
    if w:
        return 0.0
    threading.Thread(target=lambda: next(iterator, None), daemon=True).start()
    time.sleep(1)
    begin = time.monotonic()
    iterator.close()
    return time.monotonic() - begin


def failing(s, w, victim):
    """One worker's generator raises in mid-epoch."""

    def numbers():
        for i in range(40):
            if w == victim and i == 10:
                raise KeyError("no such file")
            yield np.int64(i)

    def make(c):
        spec = tf.TensorSpec((), np.int64)
        return Dataset.from_generator(numbers, output_signature=spec).batch(2)

    def loop():
        for x in s.distribute_datasets_from_function(make):
            s.reduce("SUM", s.run(lambda x: x.sum(), args=(x,)), None)

    return attempt(loop)


def refused(s, w):
    options = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA
    )
    return attempt(
        lambda: s.distribute_datasets_from_function(lambda c: Dataset.range(4), options)
    )


def _in_an_order_of_its_own(w, count):
    """A generator that begins with another element on each worker."""
    order = np.roll(np.arange(count), w)
    spec = tf.TensorSpec((), np.int64)
    return Dataset.from_generator(lambda: iter(order), output_signature=spec)


def _differing(w, folder):
    """Datasets that workers make in different ways."""
    paths = [f"{folder}/part-{i}" for i in range(3)]
    turned = paths[w:] + paths[:w]
    hint = tf.data.experimental.SHARD_HINT
    rng = np.random.default_rng(w)  # Its second draws are 0.27 and 0.95.
    return {
        "files": lambda: tf.data.TextLineDataset(turned).batch(2),
        "names": lambda: _lines_of(Dataset.from_tensor_slices(turned)).batch(2),
        "arrays": lambda: Dataset.from_tensor_slices(np.arange(9) + w / 4).batch(2),
        "endless": lambda: Dataset.from_tensor_slices([w, 1]).repeat().batch(2),
        "length": lambda: Dataset.range(8 + w).batch(4),
        "empty": lambda: Dataset.range(8 * w).batch(4),
        "batch": lambda: Dataset.range(8).batch(4 + w),
        "function": lambda: Dataset.range(8).map([_same, abs][w]).batch(4),
        "shard": lambda: Dataset.range(8).shard(2, w).batch(4),
        "generator": lambda: _in_an_order_of_its_own(w, 40).batch(4),
        "cached": lambda: _in_an_order_of_its_own(w, 40).cache().shuffle(40).batch(4),
        "no elements": lambda: _generated(40 * w).batch(4),
        "marked": lambda: _with_policy(
            _in_an_order_of_its_own(w, 40).shard(hint, hint).batch(4), "HINT"
        ),
        "loader": lambda: [np.full(4, w / 4), np.zeros(4)],
        "filter": lambda: (
            Dataset.range(90).filter(lambda x: np.bool_(rng.random() < 0.5)).batch(8)
        ),
    }


def differing(s, w, folder, case):
    """What a worker gets of a dataset that is another one on every worker."""
    make = _differing(w, folder)[case]
    return attempt(lambda: _steps(s, make()))


def several_in_another_order(s, w):
    made = [Dataset.range(8).batch(4), _generated(8).batch(4)]
    return attempt(lambda: [_steps(s, d) for d in (made[::-1] if w else made)])


def exempt(s, w, folder):
    """Datasets that may differ, and what a worker reads of them."""
    paths = [f"{folder}/mount{w}/part-{i}" for i in range(2)]
    own = Dataset.from_tensor_slices(np.arange(4) + 10 * w).batch(2)
    rng = np.random.default_rng(w)
    changed = _generated(4).map(lambda x: np.int64(float(x) + rng.random())).batch(4)
    return [
        _steps(s, tf.data.TextLineDataset(paths).map(_number).batch(2)),
        _steps(s, _with_policy(own, "OFF")),
        [local(s, x) for x in s.distribute_datasets_from_function(lambda c: own)],
        _steps(s, changed),
    ]


def set_to(s, w, positions):
    """Workers continue at positions of their own in what all of them read."""
    iterator = iter(s.experimental_distribute_dataset(Dataset.range(20).batch(2)))
    states = []
    for x in iterator:
        states.append(iterator.get_state())
        del x
    return attempt(lambda: iterator.set_state(states[positions[w]]))
