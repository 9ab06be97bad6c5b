"""Variables of every synchronization and aggregation, in every context."""

import numpy as np
import tensorflow as tf

s = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
A, S = tf.VariableAggregation, tf.VariableSynchronization
ctx = tf.distribute.get_replica_context
rid = lambda: tf.cast(ctx().replica_id_in_sync_group, tf.float32)


def vals(v):
    return [float(x) for x in s.experimental_local_results(v)]


def show(name, fn):
    try:
        print(name, fn())
    except Exception as e:
        print(name, type(e).__name__)


def make(sync, agg, init=1.0, **k):
    with s.scope():
        return tf.Variable(init, synchronization=sync, aggregation=agg, **k)


for sync in (S.AUTO, S.ON_WRITE, S.ON_READ, S.NONE):
    for agg in (A.NONE, A.SUM, A.MEAN, A.ONLY_FIRST_REPLICA):
        tag = f"{sync.name} {agg.name}"

        def case(name, fn):
            def go():
                v = make(sync, agg)
                r = fn(v)
                return vals(v), float(
                    v.read_value()
                ) if agg != A.NONE or sync != S.ON_READ else None

            if agg == A.NONE and sync != S.ON_READ and "rep" in name:
                return
            if sync == S.ON_READ and agg == A.NONE and name == "cross add":
                return
            if sync == S.ON_READ and name in ("cross add", "cross sub"):
                return
            show(f"{tag} {name}", go)

        case("cross assign", lambda v: v.assign(4.0))
        case("cross add", lambda v: v.assign_add(3.0))
        case("cross sub", lambda v: v.assign_sub(3.0))
        case("rep assign", lambda v: s.run(lambda: v.assign(rid() + 2.0)))
        case("rep add", lambda v: s.run(lambda: v.assign_add(rid() + 2.0)))
        case("rep sub", lambda v: s.run(lambda: v.assign_sub(rid() + 2.0)))
        case("rep const", lambda v: s.run(lambda: v.assign(5.0)))
        case(
            "fn rep add",
            lambda v: tf.function(lambda: s.run(lambda: v.assign_add(rid() + 2.0)))(),
        )
v = make(S.ON_READ, A.MEAN)
show(
    "onread read in replica",
    lambda: vals(s.run(lambda: (v.assign(rid()), v.read_value())[1])),
)
show("onread cross", lambda: float(v.read_value()))
v = make(S.ON_READ, A.SUM, 0)
show("int sum", lambda: (s.run(lambda: v.assign_add(1)), int(v.read_value()))[1])
show("trainable onread", lambda: make(S.ON_READ, A.SUM).trainable)
show("trainable onread true", lambda: make(S.ON_READ, A.SUM, trainable=True).trainable)
show("trainable mirrored", lambda: make(S.AUTO, A.NONE).trainable)
m = make(S.AUTO, A.MEAN, [1.0, 2.0])
show(
    "shape",
    lambda: (
        m.shape,
        m.dtype == tf.float32,
        m.name,
        m.synchronization.name,
        m.aggregation.name,
    ),
)
show(
    "isinst",
    lambda: (
        isinstance(m, tf.Variable),
        isinstance(m, tf.distribute.DistributedValues),
    ),
)
show("bad shape", lambda: m.assign([1.0, 2.0, 3.0]))
show("bad dtype", lambda: m.assign([1, 2]) is not None)
show("str", lambda: m.assign("a"))
show(
    "scatter",
    lambda: (
        m.scatter_add(tf.IndexedSlices(tf.constant([5.0]), tf.constant([1]))),
        m.numpy().tolist(),
    )[1],
)
show("item", lambda: m[1].numpy())
show("iter", lambda: [float(a) for a in m])
show(
    "ops",
    lambda: (
        (m * 2).numpy().tolist(),
        (2 - m).numpy().tolist(),
        (m @ m).numpy() if False else 0,
        (-m).numpy().tolist(),
        (m > 1.5).numpy().tolist(),
    ),
)
show("read_value", lambda: m.read_value().numpy().tolist())
show("value", lambda: m.value().numpy().tolist())
show(
    "update",
    lambda: (
        [
            t.numpy().tolist()
            for t in s.experimental_local_results(
                s.extended.update(m, lambda v, a: v.assign_add(a), args=([1.0, 1.0],))
            )
        ],
        m.numpy().tolist(),
    ),
)
show(
    "update kw",
    lambda: (
        s.extended.update(
            m, lambda v, a: v.assign(a), kwargs={"a": [9.0, 9.0]}, group=True
        ),
        m.numpy().tolist(),
    )[1],
)
show(
    "update in replica",
    lambda: s.run(lambda: s.extended.update(m, lambda v: v.assign_add([1.0, 1.0]))),
)


def merge_update():
    def f():
        def merge(st, g):
            g = st.extended.reduce_to("SUM", g, m)
            return st.extended.update(m, lambda v, g: v.assign_sub(g), args=(g,))

        ctx().merge_call(merge, args=(tf.fill([2], rid() + 1.0),))

    s.run(f)
    return m.numpy().tolist()


show("merge update", merge_update)
show(
    "batch_reduce_to",
    lambda: [
        np.asarray(s.experimental_local_results(r)[0]).tolist()
        for r in s.extended.batch_reduce_to(
            "SUM", [(s.run(lambda: rid() + 1.0), m), (s.run(lambda: rid() * 2.0), m)]
        )
    ],
)
show(
    "reduce_to mean",
    lambda: [
        float(t)
        for t in s.experimental_local_results(
            s.extended.reduce_to("MEAN", s.run(lambda: rid() + 1.0), m)
        )
    ],
)
show("colocate", lambda: s.extended.colocate_vars_with(m) is not None)
show(
    "vcreated",
    lambda: (
        s.extended.variable_created_in_scope(m),
        s.extended.variable_created_in_scope(tf.Variable(1.0)),
    ),
)
out = tf.Variable(3.0)
show("outside in run", lambda: vals(s.run(lambda: out + rid())))
show("outside assign", lambda: (s.run(lambda: out.assign_add(1.0)), float(out))[1])


def create_in_run():
    made = []

    @tf.function
    def step():
        def f():
            if not made:
                made.append(tf.Variable(2.0))
            return made[0] * (rid() + 1.0)

        return s.run(f)

    return vals(step()), type(made[0]).__name__


show("create in run", create_in_run)


def init_per_replica():
    with s.scope():
        v = tf.Variable(lambda: tf.constant(4.0))
    return vals(v)


show("callable init", init_per_replica)


def grads():
    with s.scope():
        w = tf.Variable(2.0)

    def f():
        with tf.GradientTape() as t:
            y = w * w * (rid() + 1.0)
        return t.gradient(y, w)

    return vals(s.run(f)), vals(tf.function(lambda: s.run(f))())


show("grads", grads)


def cross_tape():
    with s.scope():
        w = tf.Variable(2.0)
    with tf.GradientTape() as t:
        y = w * w
    return float(t.gradient(y, w))


show("cross tape", cross_tape)
show("assign read_value", lambda: m.assign([0.0, 0.0], read_value=False) is None)
show(
    "chained", lambda: m.assign_add([1.0, 1.0]).assign_add([1.0, 2.0]).numpy().tolist()
)
show("aggr enum", lambda: [a.name for a in A])
show("sync enum", lambda: [a.name for a in S])
show(
    "caching",
    lambda: (
        m.is_initialized().numpy()
        if hasattr(m.is_initialized(), "numpy")
        else m.is_initialized()
    ),
)
show("eq", lambda: (m == m) is not None)


def onread_ckpt():
    import tempfile

    v = make(S.ON_READ, A.SUM, 0.0)
    w = make(S.ON_READ, A.MEAN, 0.0)
    f = make(S.ON_READ, A.ONLY_FIRST_REPLICA, 0.0)
    s.run(
        lambda: (
            v.assign_add(rid() + 1.0),
            w.assign_add(rid() + 1.0),
            f.assign_add(rid() + 1.0),
        )
    )
    p = tf.train.Checkpoint(v=v, w=w, f=f).save(tempfile.mkdtemp() + "/c")
    r = tf.train.load_checkpoint(p)
    saved = [r.get_tensor(f"{n}/.ATTRIBUTES/VARIABLE_VALUE").tolist() for n in "vwf"]
    v2, w2, f2 = (
        make(S.ON_READ, A.SUM, 0.0),
        make(S.ON_READ, A.MEAN, 0.0),
        make(S.ON_READ, A.ONLY_FIRST_REPLICA, 0.0),
    )
    tf.train.Checkpoint(v=v2, w=w2, f=f2).restore(p).assert_consumed()
    plain = tf.Variable(0.0)
    tf.train.Checkpoint(v=plain).restore(p).expect_partial()
    return (
        saved,
        vals(v2),
        vals(w2),
        vals(f2),
        float(v2.read_value()),
        float(w2.read_value()),
        float(plain),
    )


show("ckpt", onread_ckpt)
