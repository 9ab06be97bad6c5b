"""What workers are told to run: each takes the strategy and the worker's index.

With a `MirroredStrategy` of as many replicas in one process they give the numbers
that the workers must give together.
"""

import json
import os
import pathlib
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unisono as tf
from unisono._src.workers import worker_notes

SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
AGG, SYN = tf.VariableAggregation, tf.VariableSynchronization
context = tf.distribute.get_replica_context


def plain(x):
    """Returns `x` as JSON can hold it."""
    if isinstance(x, (list, tuple)):
        return [plain(i) for i in x]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, tf.IndexedSlices):
        return {"values": plain(x.values), "indices": plain(x.indices)}
    if isinstance(x, (str, bool, int, float, type(None))):
        return x
    return np.asarray(x).tolist()


def local(strategy, x):
    return [plain(v) for v in strategy.experimental_local_results(x)]


def parts(variable):
    return [plain(v) for v in variable.values]


def attempt(fn):
    try:
        return ["ok", plain(fn())]
    except Exception as error:
        return [type(error).__name__, str(error)]


def number():
    """Returns 1 + the replica's id, in a replica."""
    return jnp.asarray(context().replica_id_in_sync_group, jnp.float32) + 1.0


def basics(s, w):
    e = s.extended
    return plain(
        [
            s.num_replicas_in_sync,
            list(e.worker_devices),
            s.cluster_resolver.task_type,
            s.cluster_resolver.task_id,
            e.should_checkpoint,
            e.should_save_summary,
            e.experimental_should_init,
            e.experimental_between_graph,
        ]
    )


def run_ids(s, w):
    r = s.run(lambda: context().replica_id_in_sync_group + 0)
    count = s.run(lambda: context().num_replicas_in_sync)
    return [type(r).__name__, local(s, r), count]


def var_init(s, w):
    with s.scope():
        v = tf.Variable(10.0 + w)
        large = tf.Variable(np.full((64, 64), 3.0 + w, np.float32))
        key = tf.Variable(jax.random.key_data(jax.random.key(7 + w)))
        on_read = tf.Variable(5.0 + w, synchronization=SYN.ON_READ, aggregation=AGG.SUM)
    kinds = [type(v).__name__, type(on_read).__name__]
    unique = sorted(set(np.asarray(large.values[0]).ravel().tolist()))
    return [kinds, parts(v), unique, plain(key.numpy()), parts(on_read)]


def reduce(s, w):
    r = s.run(number)
    stacked = s.run(lambda: jnp.stack([number(), 1.0]))
    return plain(
        [
            s.reduce("SUM", r, None),
            s.reduce("MEAN", r, None),
            s.reduce("SUM", stacked, 0),
            s.reduce("MEAN", stacked, 0),
        ]
    )


def reduce_host(s, w):
    return [
        attempt(lambda: s.reduce("SUM", jnp.float32(3.0 + w), None)),
        attempt(lambda: s.reduce("SUM", 3.0 + w, None)),
        attempt(lambda: s.reduce("MEAN", jnp.float32(3.0 + w), None)),
    ]


def reduce_sparse(s, w):
    def rows():
        i = number()
        return tf.IndexedSlices(jnp.full((1, 2), i), jnp.array([1]), (4, 2))

    r = s.run(rows)
    return plain([s.reduce("SUM", r, None), s.reduce("MEAN", r, None)])


def reduce_sparse_to(s, w):
    """Rows that replicas reduce to a variable, and what the variable gets of them."""
    with s.scope():
        v = tf.Variable(jnp.zeros([2, 3]))
    rows = s.run(
        lambda: tf.IndexedSlices(jnp.ones([1, 3]) * number(), jnp.array([1]), (2, 3))
    )
    with s.scope():
        one = s.extended.reduce_to(SUM, rows, v)
        (two,) = s.extended.batch_reduce_to(MEAN, [(rows, v)])
        s.extended.update(v, lambda c, x: c.scatter_sub(x), args=(one,))
    return plain([one.values[0], two.values[0], v.values[0]])


def all_reduce(s, w):
    def f():
        c = context()
        rows = jnp.stack([number()])
        return c.all_reduce("SUM", number()), c.all_gather(rows, 0)

    eager = s.run(f)
    compiled = tf.function(lambda: s.run(f))()
    return [
        [local(s, x) for x in eager],
        [local(s, x) for x in compiled],
    ]


def gather(s, w):
    def rows():
        i = int(context().replica_id_in_sync_group)
        return jnp.ones([1 + i]) * (i + 1)

    return plain(s.gather(s.run(rows), axis=0))


def assign(s, w):
    with s.scope():
        v = tf.Variable(0.0, aggregation=AGG.SUM)
        m = tf.Variable(0.0, aggregation=AGG.MEAN)
        x = tf.Variable(0.0, aggregation=AGG.ONLY_FIRST_REPLICA)

    def f():
        v.assign_add(number())
        m.assign_add(number())
        x.assign_add(number())

    s.run(f)
    eager = [parts(v), parts(m), parts(x)]
    tf.function(lambda: s.run(f))()
    return [eager, [parts(v), parts(m), parts(x)]]


def assign_none(s, w):
    with s.scope():
        v = tf.Variable(0.0)
    return attempt(lambda: s.run(lambda: v.assign_add(number())))


def assign_cross(s, w):
    with s.scope():
        v = tf.Variable(1.0)
        m = tf.Variable(7.0)
    v.assign(5.0)
    v.assign_add(2.0)
    with s.scope():
        returned = v.assign_sub(m)
    differing = attempt(lambda: v.assign(1.0 + w))
    return [parts(v), plain(returned.numpy()), differing[0], parts(v)]


def on_read(s, w):
    with s.scope():
        v = tf.Variable(0.0, synchronization=SYN.ON_READ, aggregation=AGG.SUM)
        m = tf.Variable(0.0, synchronization=SYN.ON_READ, aggregation=AGG.MEAN)
        f = tf.Variable(
            0.0, synchronization=SYN.ON_READ, aggregation=AGG.ONLY_FIRST_REPLICA
        )

    def put():
        v.assign(number() * 10.0)
        m.assign(number())
        f.assign(number())

    s.run(put)
    before = [parts(v), plain(v.read_value()), plain(m.read_value()), plain(f)]
    v.assign(8.0)
    return [before, parts(v), plain(v)]


def python_numbers(s, w):
    with s.scope():
        made = [
            tf.Variable(2.5),
            tf.Variable(2.5, aggregation=AGG.MEAN),
            tf.Variable(2.5, synchronization=SYN.ON_READ, aggregation=AGG.MEAN),
            tf.Variable(1.25, synchronization=SYN.ON_READ, aggregation=AGG.SUM),
            tf.Variable(
                2.5, synchronization=SYN.ON_READ, aggregation=AGG.ONLY_FIRST_REPLICA
            ),
        ]
    alone, part = tf.Variable(2.5), made[0].values[0]
    found = [
        [float(v), int(v), bool(v), f"{v:.3f}", type(v.numpy()).__name__]
        for v in (alone, part, *made)
    ]
    return [*found, f"{made[0]}" == str(made[0])]


def parts_of_variables(s, w):
    with s.scope():
        v = tf.Variable([1.0, 2.0, 3.0, 4.0], aggregation=AGG.SUM)
        r = tf.Variable([0.0, 0.0], synchronization=SYN.ON_READ, aggregation=AGG.SUM)
    v[1:3].assign([9.0, 8.0])
    v.scatter_nd_sub([[3]], [1.0])
    for how in (lambda f: f, tf.function):
        s.run(how(lambda: v[0].assign(7.0)))
        s.run(how(lambda: v.scatter_nd_add([[3]], jnp.reshape(number(), (1,)))))
        s.run(how(lambda: r[1].assign(number())))
    told = plain([v.numpy(), v.sparse_read([3, 0]), v.gather_nd([[1]]), r.numpy()])
    return [*told, attempt(lambda: v[0].assign(1.0 + w))[0]]


def python_value_sum(s, w):
    with s.scope():
        v = tf.Variable(0.0, aggregation=AGG.SUM)
        m = tf.Variable(0.0, aggregation=AGG.MEAN)
    told = attempt(lambda: s.run(lambda: v.assign_add(2.0)) and None)
    s.run(lambda: m.assign(3.0))
    eager = [told[0], parts(v), parts(m)]
    told = attempt(tf.function(lambda: s.run(lambda: v.assign_add(2.0)) and None))
    return [eager, [told[0], parts(v)]]


def values_from_function(s, w):
    made = s.experimental_distribute_values_from_function(
        lambda c: jnp.array([c.replica_id_in_sync_group, c.num_replicas_in_sync])
    )
    doubled = s.run(lambda x: x * 2, args=(made,))
    compiled = tf.function(lambda x: s.run(lambda y: y * 2, args=(x,)))(made)
    total = tf.function(lambda x: s.reduce("SUM", x, None))(made)
    return [
        type(made).__name__,
        local(s, made),
        local(s, doubled),
        local(s, compiled),
        plain(total),
    ]


_VALUES = {
    "even": lambda c: jnp.full((1, 2), 1.0 + c.replica_id_in_sync_group),
    "uneven": lambda c: jnp.full((1 + c.replica_id_in_sync_group, 2), 3.0),
}


def _total(x):
    return context().all_reduce("SUM", jnp.sum(x))


def _use(s, x, kind):
    """What a program does with a per-replica value, by name."""
    told = {
        "axis": s.reduce("MEAN", x, 0),
        "gather": s.gather(x, 0),
        "argument": s.run(lambda y: y * 2.0, args=(x,)),
        "collective": s.run(_total, args=(x,)),
        "returned": x,
        "local": list(s.experimental_local_results(x)),
    }
    if kind == "even":
        told["sum"] = s.reduce("SUM", x, None)
        told["mean"] = s.reduce("MEAN", x, None)
        told["captured"] = s.run(lambda: jnp.multiply(x, 2.0))
    return told


def values_in_functions(s, w, kind):
    """Per-replica values that a function captures, makes, or is given."""

    def made():
        return s.experimental_distribute_values_from_function(_VALUES[kind])

    x = made()
    found = {
        "eager": lambda: _use(s, x, kind),
        "captured": tf.function(lambda: _use(s, x, kind)),
        "made": tf.function(lambda: _use(s, made(), kind)),
        "given": lambda: tf.function(lambda y: _use(s, y, kind))(x),
    }
    return {
        where: attempt(lambda f=f: {k: local(s, v) for k, v in f().items()})
        for where, f in found.items()
    }


def local_in_functions(s, w):
    """The local results of what else a function has: variables, results, structures."""
    with s.scope():
        v = tf.Variable(7.0)
        r = tf.Variable(0.0, synchronization=SYN.ON_READ, aggregation=AGG.SUM)
    s.run(lambda: r.assign(number()))
    take = s.experimental_local_results

    def merged(strategy, x):
        return strategy.experimental_local_results(x)

    def replicas(x):
        return context().merge_call(merged, args=(number() * x,))

    @tf.function
    def step(x):
        ids = s.run(number)
        dependent = s.experimental_distribute_values_from_function(
            lambda c: x * (1.0 + c.replica_id_in_sync_group)
        )
        return {
            "run": take(ids),
            "structure": take({"a": [ids], "b": 3}),
            "mirrored": [1.0 * c for c in take(v)],
            "on read": [1.0 * c for c in take(r)],
            "plain": take(x),
            "dependent": take(dependent),
            "summed": s.reduce("SUM", dependent, None),
            "merged": [take(part) for part in s.run(replicas, args=(x,))],
        }

    return plain(step(jnp.float32(10.0)))


def draw(key):
    return jax.random.uniform(key, (2,))


def captured_in_functions(s, w):
    """Arrays and batches of a worker that a function captures."""
    rows = np.arange(8.0, dtype=np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(8)
    batch = next(iter(s.experimental_distribute_dataset(dataset)))
    own = jnp.full(2, 1.0 + w)
    key = jax.random.key(w)
    more = tf.data.Dataset.from_tensor_slices(np.arange(32.0)).batch(8)
    iterator = iter(s.experimental_distribute_dataset(more))

    @tf.function
    def take_two(iterator):
        return [s.run(_total, args=(next(iterator),)) for _ in range(2)]

    told = {
        "batch": local(s, tf.function(lambda: s.run(_total, args=(batch,)))()),
        "taken": [local(s, x) for _ in range(2) for x in take_two(iterator)],
        "traced": take_two.experimental_get_tracing_count(),
        "array": local(s, tf.function(lambda: s.run(_total, args=(own,)))()),
        "scaled": local(s, tf.function(lambda: s.run(lambda: _total(own * 2.0)))()),
        "drawn": local(s, tf.function(lambda: s.run(lambda: _total(draw(key))))()),
        "mean": plain(tf.function(lambda: s.reduce("MEAN", own, None))()),
        "number": attempt(tf.function(lambda: s.reduce("MEAN", 1.0 + w, None))),
        "loss": attempt(tf.function(lambda: s.reduce("MEAN", own[0], None))),
    }
    return told


def merge(s, w):
    def merged(strategy, x):
        return type(x).__name__, strategy.reduce("SUM", x, None)

    r = s.run(lambda: context().merge_call(merged, args=(number(),)))
    kind, total = r
    return [kind, [plain(t) for t in local(s, total)]]


def update(s, w):
    with s.scope():
        v = tf.Variable([1.0, 2.0])

    def step():
        def merge_fn(strategy, x):
            total = strategy.extended.reduce_to("SUM", x, destinations=v)
            strategy.extended.update(v, lambda c, t: c.assign_sub(t), args=(total,))

        context().merge_call(merge_fn, args=(number() * jnp.ones(2),))

    s.run(step)
    eager = parts(v)
    tf.function(lambda: s.run(step))()
    compiled = parts(v)
    diverging = attempt(
        lambda: s.extended.update(v, lambda c: c.assign(jnp.full(2, float(w))))
    )
    return [eager, compiled, diverging[0], parts(v)]


def uneven(s, w):
    """Batches whose sizes differ, also between workers."""
    with s.scope():
        v = tf.Variable(0.0, aggregation=AGG.MEAN)

    def rows(c):
        i = c.replica_id_in_sync_group
        return jnp.arange(1.0 + i) + 1.0

    batch = s.experimental_distribute_values_from_function(rows)

    def f(x):
        mean = context().all_reduce("SUM", jnp.sum(x)) / context().all_reduce(
            "SUM", jnp.float32(x.shape[0])
        )
        v.assign(jnp.sum(x))
        return mean, x * 2.0

    eager = s.run(f, args=(batch,))
    read = plain(v)
    v.assign(0.0)

    @tf.function
    def step(x):
        out = s.run(f, args=(x,))
        return out, s.reduce("MEAN", out[1], axis=0)

    compiled, mean = step(batch)
    gathered = s.gather(batch, 0)
    return [
        [local(s, e) for e in eager],
        read,
        [local(s, e) for e in compiled],
        plain(mean),
        plain(v),
        plain(gathered),
    ]


def gradients(s, w):
    """Gradients through collectives, eagerly and compiled."""
    with s.scope():
        v = tf.Variable([2.0, -1.0])

    def f():
        x = jnp.stack([number(), number() ** 2])

        def loss():
            centred = v * x - context().all_reduce("MEAN", v * x)
            every = context().all_gather((v * x)[None], 0)
            return jnp.sum(centred**2) + jnp.sum(every**3) * number()

        return tf.grad(loss, [v])()[0]

    eager = local(s, s.run(f))
    compiled = local(s, tf.function(lambda: s.run(f))())
    return [eager, compiled]


def train(s, w, steps=5, accumulate=1, compiled=True):
    """A small network with a tape, Adam and metrics, on given global batches."""
    rng = np.random.default_rng(0)
    n = s.num_replicas_in_sync
    xs = rng.normal(size=(steps, n, 4, 3)).astype(np.float32)
    ys = (xs.sum(-1, keepdims=True) > 0).astype(np.float32)
    with s.scope():
        a = tf.Variable(rng.normal(size=(3, 5)).astype(np.float32), name="a")
        b = tf.Variable(rng.normal(size=(5, 1)).astype(np.float32), name="b")
        optimizer = tf.optimizers.Optimizer(
            optax.adam(0.05), [a, b], accumulate_steps=accumulate
        )
        mean = tf.metrics.Mean()

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            out = jnp.tanh(x @ a) @ b
            value = jnp.sum((out - y) ** 2) / (4 * n)
        optimizer.apply_gradients(zip(tape.gradient(value, [a, b]), [a, b]))
        mean.update_state(value)
        return value

    def step(x, y):
        return s.reduce("SUM", s.run(replica_step, args=(x, y)), axis=None)

    if compiled:
        step = tf.function(step)

    def batch(k, array):
        return s.experimental_distribute_values_from_function(
            lambda c: array[k, c.replica_id_in_sync_group]
        )

    losses = [plain(step(batch(k, xs), batch(k, ys))) for k in range(steps)]
    return [
        losses,
        plain(a),
        plain(b),
        plain(mean.result()),
        plain(optimizer.iterations),
    ]


def total_of_a_range(s, w):
    """The loop of a program that counts 0 … 63, eight numbers per global batch."""
    with s.scope():
        total = tf.Variable(0.0, synchronization=SYN.ON_READ, aggregation=AGG.SUM)

    @tf.function
    def step(batch):
        s.run(lambda x: total.assign_add(jnp.sum(x).astype(jnp.float32)), args=(batch,))

    size = 8 // s.num_replicas_in_sync
    for k in range(8):
        step(
            s.experimental_distribute_values_from_function(
                lambda c, k=k: (
                    np.arange(size) + 8 * k + size * c.replica_id_in_sync_group
                )
            )
        )
    return float(total.numpy())


def created_in_run(s, w):
    made = []

    @tf.function
    def step():
        def f():
            if not made:
                made.append(tf.Variable(number() + 10 * w, aggregation=AGG.SUM))
            return made[0].assign_add(number())

        return s.run(f)

    step()
    return parts(made[0])


def different_points(s, w):
    def f():
        return s.reduce("SUM" if w == 0 else "MEAN", s.run(number), None)

    told = attempt(f)
    again = s.reduce("SUM", s.run(number), None)
    return [told, plain(again)]


def cross_program(s, w):
    """Variables read and written by a function outside replicas, and plain ones."""
    with s.scope():
        v = tf.Variable(2.0)
        r = tf.Variable(1.0, synchronization=SYN.ON_READ, aggregation=AGG.SUM)
    outside = tf.Variable(3.0)

    @tf.function
    def f(x):
        v.assign(v * x + outside)
        outside.assign_add(1.0)
        return v.read_value() + r.read_value(), x * 2

    first = plain(f(jnp.float32(4.0)))
    second = plain(f(np.float32(4.0)))
    return [first, second, plain(v), plain(outside)]


def notes(s, w, rounds=20):
    """Threads of all workers agree while their main threads take steps."""
    found = []
    counter = worker_notes.NoteExchange(
        s.extended._topology, f"notes of {rounds}", 20.0
    )

    def agree():
        for k in range(rounds):
            found.append(counter.post(json.dumps([w, k])))

    thread = threading.Thread(target=agree)
    thread.start()
    totals = [plain(s.reduce("SUM", s.run(number), None)) for _ in range(5)]
    thread.join(30.0)
    late = worker_notes.NoteExchange(s.extended._topology, f"late {rounds}", 1.0)
    alone = attempt(lambda: late.post("x")) if w == 0 else None
    return [[[json.loads(n) for n in r] for r in found], len(set(totals)), alone]


def invalid_numbers(s, w):
    """What workers tell of a step in which the last replica divides zero by zero."""
    with s.scope():
        v = tf.Variable(1.0, aggregation=AGG.MEAN, name="v")

    @tf.function
    def step(x):
        def f(y):
            ratio = y / y
            v.assign_add(jnp.mean(ratio))
            return jnp.sum(y)

        return s.reduce(SUM, s.run(f, args=(x,)), axis=None)

    def batch(context):
        last = context.replica_id_in_sync_group == s.num_replicas_in_sync - 1
        return jnp.array([1.0, 2.0, 0.0 if last else 3.0])

    make = s.experimental_distribute_values_from_function
    line = invalid_numbers.__code__.co_firstlineno + 8
    with jax.debug_nans(True):
        told = attempt(lambda: step(make(batch)))
        return told, line, plain(step(make(lambda _: jnp.ones(3)))), parts(v)


class Fatal(Exception):
    """Ends a worker, as an exception that nobody catches does."""


def faulty_loop(s, w, fault, victim, at=5, steps=400):
    """Steps of which one goes wrong on one worker; tells what the others see."""
    with s.scope():
        v = tf.Variable(0.0)
    rate = 2.0 if fault == "rate" and w == victim else 1.0

    @tf.function
    def step(x):
        def f(y):
            return context().all_reduce("SUM", jnp.sum(y * rate))

        n = s.num_replicas_in_sync
        v.assign_add(s.reduce("MEAN", s.run(f, args=(x,)), axis=None) / n)
        return v.read_value()

    @tf.function
    def other(x):
        return s.reduce("SUM", s.run(lambda y: y * 2.0, args=(x,)), axis=None)

    def batches():
        for k in range(steps):
            is_wrong = k == at and w == victim
            if is_wrong and fault == "input":
                raise Fatal("the input is broken")
            yield _go_wrong(fault) if is_wrong else jnp.ones(1)

    told: list = ["none", None, ""]
    last, is_finished = time.monotonic(), False
    try:
        for k, batch in enumerate(batches()):
            for call in _order(step, other, fault, k == at and w == victim):
                np.asarray(call(batch))
            last = time.monotonic()
            time.sleep(0.02)
    except tf.errors.WorkerError as error:
        told = [type(error).__name__, error.worker, str(error)]
    finally:
        seconds, is_finished = time.monotonic() - last, True
    return [*told, seconds, is_finished, attempt(lambda: float(v.numpy()))]


def _order(step, other, fault, is_odd):
    """Returns the functions that a worker calls in one round, in their order."""
    if fault == "order":
        return [other, step] if is_odd else [step, other]
    return [other if fault == "functions" and is_odd else step]


def _go_wrong(fault):
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "raise":
        raise Fatal("this worker has had enough")
    if fault == "exit":
        sys.exit(0)
    if fault == "sleep":
        time.sleep(60.0)
    return jnp.ones(2) if fault == "shapes" else jnp.ones(1)


def logical_devices(s, w):
    """Trains with replicas of two logical devices; `s` itself without workers."""
    if hasattr(s, "cluster_resolver"):
        grid = tf.tpu.experimental.initialize_tpu_system(s.cluster_resolver)
        pairs = tf.tpu.experimental.DeviceAssignment.build(
            grid, [1, 1, 1, 2], num_replicas=2
        )
        s = tf.distribute.TPUStrategy(s.cluster_resolver, pairs)
    split = getattr(s, "experimental_split_to_logical_devices", lambda x, parts: x)
    with s.scope():
        v = tf.Variable(jnp.arange(8.0).reshape(4, 2) / 8)
        optimizer = tf.optimizers.Optimizer(optax.adam(0.1), [v])
        count = tf.Variable(0.0, synchronization=SYN.ON_READ, aggregation=AGG.SUM)

    def step():
        x = jnp.ones([2, 4]) * number()

        def loss():
            return jnp.mean(jnp.tanh(split(x, [1, 2]) @ v) ** 2)

        value, gradients = tf.value_and_grad(loss, [v])()
        optimizer.apply_gradients(zip(gradients, [v]))
        count.assign_add(number())
        return value

    losses = []
    for fn in (tf.function(step), tf.function(step), step):
        losses.append(plain(s.reduce(SUM, s.run(fn), axis=None)))
    return losses, plain(v.read_value()), plain(count.read_value())


def save_of_copies_that_differ(s, w, directory):
    """Returns the error of a save after the copies of a variable became different."""
    with s.scope():
        same, other = tf.Variable(1.0, name="same"), tf.Variable(1.0, name="other")
    checkpoint = tf.train.Checkpoint(same=same, other=other)
    before = checkpoint.save(f"{directory}/before")
    same.assign_sub(0.5)
    # As by a fault of the machine: no program of the user's can do it.
    cell = other.state_cell
    cell.array = cell.topology.spread(jnp.float32(0.1 + w))
    told = attempt(lambda: checkpoint.save(f"{directory}/after"))
    found = sorted(p.name for p in pathlib.Path(directory).iterdir())
    return told, pathlib.Path(before).name in found, any("after" in n for n in found)


def barrier_for_a_file(s, w, directory):
    """Returns whether a worker finds the file that the chief writes slowly."""
    path = pathlib.Path(directory, "written")
    if s.extended.should_checkpoint:
        time.sleep(1.0)
        path.write_text("done")
    s.barrier("written")
    return path.exists()


def barrier_with_a_late_worker(s, w, directory):
    """Returns what the first worker is told of one that comes too late."""
    is_told = pathlib.Path(directory) / "told"
    while w == 1 and not is_told.exists():
        time.sleep(0.05)
    limit = 0.5 if w == 0 else 60.0
    told = attempt(lambda: s.barrier("late", timeout_seconds=limit))
    is_told.touch()
    s.barrier("together again")
    return told


def barrier_of_two_names(s, w):
    """Returns the error of workers that meet at different barriers."""
    return attempt(lambda: s.barrier(f"point {w}"))


def barrier_in_a_replica(s, w):
    """Returns the error of a barrier in `run` and in a compiled function."""
    return [
        attempt(lambda: s.run(lambda: s.barrier("a"))),
        attempt(tf.function(lambda: s.barrier("b"))),
    ]
