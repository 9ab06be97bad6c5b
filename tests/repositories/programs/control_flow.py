"""Control flow in functions as programs write it: decoders, beams, nested loops, early returns."""

import numpy as np
import tensorflow as tf


def show(name, fn):
    try:
        print(
            name,
            tf.nest.map_structure(lambda v: np.round(np.asarray(v), 4).tolist(), fn()),
        )
    except Exception as e:
        print(name, type(e).__name__)


rng = np.random.RandomState(0)
E = tf.constant(rng.randn(7, 4).astype("float32"))
W = tf.constant(rng.randn(4, 7).astype("float32"))


@tf.function
def beam(start, k=3, steps=4, eos=2):
    logp = tf.zeros([1])
    seqs = tf.reshape(start, [1, 1])
    for t in range(steps):
        h = tf.reduce_mean(tf.gather(E, seqs), axis=1)
        lp = tf.nn.log_softmax(h @ W)
        total = logp[:, None] + lp
        flat = tf.reshape(total, [-1])
        top = tf.math.top_k(flat, k=k)
        parent = top.indices // 7
        tok = top.indices % 7
        seqs = tf.concat([tf.gather(seqs, parent), tok[:, None]], axis=1)
        logp = top.values
    return seqs, logp


show("beam", lambda: beam(tf.constant(1)))


@tf.function
def greedy(x, max_len):
    tokens = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
    tokens = tokens.write(0, x)
    i = 0
    done = False
    while i < max_len and not done:
        logits = tf.reduce_mean(tf.gather(E, tokens.stack()), 0)[None] @ W
        nxt = tf.argmax(logits[0], output_type=tf.int32)
        tokens = tokens.write(i + 1, nxt)
        done = nxt == 2
        i += 1
    return tokens.stack(), i


show("greedy", lambda: greedy(tf.constant(1), tf.constant(5)))


@tf.function
def primes(n):
    out = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
    c = 0
    for i in tf.range(2, n):
        is_p = True
        for j in tf.range(2, i):
            if j * j > i:
                break
            if i % j == 0:
                is_p = False
                break
        if not is_p:
            continue
        out = out.write(c, i)
        c += 1
    return out.stack()


show("primes", lambda: primes(tf.constant(30)))


@tf.function
def tern(x):
    return tf.reduce_sum(x) if tf.reduce_mean(x) > 0 else tf.reduce_prod(x)


show(
    "tern",
    lambda: (tern(tf.constant([1.0, 2.0])), tern(tf.constant([-1.0, -2.0, -3.0]))),
)


@tf.function
def logic(a, b):
    return (a and not b) or (b and a > 0), a if a else b, not a


show(
    "logic",
    lambda: (
        logic(tf.constant(True), tf.constant(False))
        if False
        else tf.function(lambda a, b: tf.logical_and(a, tf.logical_not(b)))(
            tf.constant(True), tf.constant(False)
        )
    ),
)


@tf.function
def chained(x):
    return tf.constant(1) if 0 < x < 5 else tf.constant(0)


show("chain", lambda: [chained(tf.constant(i)) for i in (0, 3, 5)])


show(
    "while max",
    lambda: tf.while_loop(
        lambda i: True, lambda i: [i + 1], [tf.constant(0)], maximum_iterations=4
    ),
)
show(
    "cond nest",
    lambda: tf.cond(
        tf.constant(True),
        lambda: {"a": 1.0, "b": [tf.constant(2)]},
        lambda: {"a": 2.0, "b": [tf.constant(3)]},
    ),
)
show("cond py", lambda: tf.cond(True, lambda: 1.0, lambda: 2.0))
show(
    "cond mismatched",
    lambda: tf.function(
        lambda p: tf.cond(p, lambda: tf.constant(1.0), lambda: tf.constant(1))
    )(tf.constant(True)),
)
show(
    "case",
    lambda: tf.case(
        [
            (tf.constant(False), lambda: tf.constant(1)),
            (tf.constant(True), lambda: tf.constant(2)),
        ],
        default=lambda: tf.constant(3),
    ),
)
show("case none", lambda: tf.case([(tf.constant(False), lambda: tf.constant(1))]))
show(
    "switch",
    lambda: [
        tf.switch_case(
            tf.constant(i),
            [lambda: tf.constant(10), lambda: tf.constant(20)],
            default=lambda: tf.constant(-1),
        )
        for i in (0, 1, 5)
    ],
)
show(
    "switch nodefault",
    lambda: tf.switch_case(
        tf.constant(7), [lambda: tf.constant(10), lambda: tf.constant(20)]
    ),
)
show(
    "map_fn",
    lambda: tf.map_fn(
        lambda x: (x[0] + x[1], x[0] * 2.0),
        (tf.range(3.0), tf.ones([3])),
        fn_output_signature=(tf.float32, tf.float32),
    ),
)
show(
    "map_fn dtype",
    lambda: tf.map_fn(
        lambda x: tf.cast(x, tf.int32) * 2, tf.constant([1.0, 2.0]), dtype=tf.int32
    ),
)
show(
    "map_fn wrong",
    lambda: tf.map_fn(lambda x: tf.cast(x, tf.int32), tf.constant([1.0, 2.0])),
)
show("scan", lambda: tf.scan(lambda a, x: a * x, tf.constant([1.0, 2.0, 3.0])))
show(
    "scan init rev",
    lambda: tf.scan(
        lambda a, x: (a[0] + x, a[1] * 2.0),
        tf.constant([1.0, 2.0, 3.0]),
        initializer=(tf.constant(0.0), tf.constant(1.0)),
        reverse=True,
    ),
)
show(
    "foldl",
    lambda: (
        tf.foldl(lambda a, x: a - x, tf.range(5)),
        tf.foldr(lambda a, x: a - x, tf.range(5)),
        tf.foldl(
            lambda a, x: a + x, tf.range(3.0), initializer=tf.constant([1.0, 2.0])
        ),
    ),
)
show(
    "vmap",
    lambda: tf.vectorized_map(
        lambda x: tf.reduce_sum(x**2) * tf.ones([2]), tf.reshape(tf.range(6.0), [3, 2])
    ),
)
show(
    "vmap pair",
    lambda: tf.vectorized_map(
        lambda ab: tf.tensordot(ab[0], ab[1], 1),
        (tf.ones([4, 3]), tf.reshape(tf.range(12.0), [4, 3])),
    ),
)


@tf.function
def grad_while(x, n):
    with tf.GradientTape() as t:
        t.watch(x)
        y = x
        i = tf.constant(0)
        for i in tf.range(3):
            y = y * x + tf.cast(i, tf.float32)
    return y, t.gradient(y, x)


show("grad for", lambda: grad_while(tf.constant(2.0), 3))


@tf.function
def grad_cond(x):
    with tf.GradientTape() as t:
        t.watch(x)
        if x > 1.0:
            y = x**3
        else:
            y = -x
    return t.gradient(y, x)


show("grad cond", lambda: (grad_cond(tf.constant(2.0)), grad_cond(tf.constant(0.5))))


@tf.function
def grad_scan(w):
    with tf.GradientTape() as t:
        t.watch(w)
        h = tf.scan(
            lambda h, x: tf.tanh(h * w + x),
            tf.constant([0.1, 0.2, 0.3]),
            initializer=tf.constant(0.0),
        )
        l = tf.reduce_sum(h**2)
    return l, t.gradient(l, w)


show("grad scan", lambda: grad_scan(tf.constant(0.7)))


@tf.function
def ta_ops(x):
    ta = tf.TensorArray(tf.float32, size=3, infer_shape=True).unstack(x)
    ta = ta.write(1, ta.read(0) * 10.0)
    return ta.stack(), ta.gather([2, 0]), ta.concat(), ta.size()


show("ta", lambda: ta_ops(tf.reshape(tf.range(6.0), [3, 2])))
show(
    "ta split",
    lambda: tf.TensorArray(tf.float32, 3).split(tf.range(6.0), [2, 2, 2]).stack(),
)
show(
    "ta scatter",
    lambda: (
        tf.TensorArray(tf.float32, 3)
        .scatter([2, 0, 1], tf.constant([1.0, 2.0, 3.0]))
        .stack()
    ),
)
show(
    "ta twice",
    lambda: tf.TensorArray(tf.float32, 2).write(0, 1.0).write(0, 2.0).stack(),
)
show("ta oob", lambda: tf.TensorArray(tf.float32, 2).write(5, 1.0))


@tf.function
def py_loop(xs):
    tot = 0.0
    for name, x in sorted(xs.items()):
        tot += x * len(name)
    for a, b in zip([1.0, 2.0], [3.0, 4.0]):
        tot += a * b
    for i, z in enumerate(tf.unstack(tf.constant([1.0, 2.0]))):
        tot += i * z
    return tot


show("py", lambda: py_loop({"ab": tf.constant(1.0), "c": tf.constant(2.0)}))


@tf.function
def over_tensor(x):
    s = 0.0
    for row in x:
        if tf.reduce_sum(row) < 0:
            continue
        s += tf.reduce_max(row)
    return s


show("over", lambda: over_tensor(tf.constant([[1.0, 2.0], [-5.0, 1.0], [3.0, 0.0]])))


@tf.function
def nested(x):
    def inner(y):
        nonlocal_sum = y
        while nonlocal_sum < 10:
            nonlocal_sum *= 2
        return nonlocal_sum

    fs = [inner, lambda z: z + 1]
    for f in fs:
        x = f(x)
    return x


show("nested", lambda: nested(tf.constant(3)))


@tf.function
def undefined(x):
    if x > 0:
        y = 1.0
    return y


show("undefined", lambda: undefined(tf.constant(1)))


@tf.function
def try_stmt(x):
    try:
        y = x * 2
    finally:
        z = 1
    with tf.name_scope("a"):
        y = y + z
    return y


show("try", lambda: try_stmt(tf.constant(2)))


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None], tf.int32),
    ]
)
def masked_mean(x, lens):
    mask = tf.sequence_mask(lens, tf.shape(x)[1], dtype=tf.float32)
    return tf.reduce_sum(x * mask, 1) / tf.maximum(tf.reduce_sum(mask, 1), 1.0)


show(
    "masked",
    lambda: (
        masked_mean(tf.ones([2, 3]), tf.constant([1, 3])),
        masked_mean(tf.ones([3, 5]), tf.constant([0, 3, 5])),
    ),
)


show(
    "tf.print ret",
    lambda: tf.function(
        lambda x: (tf.print("x", x, output_stream="file:///dev/null"), x)[1]
    )(tf.constant(1)),
)
show(
    "npfunc", lambda: tf.numpy_function(lambda a: a + 1, [tf.constant(3.0)], tf.float32)
)
show("recompute", lambda: tf.recompute_grad(lambda x: x * x)(tf.constant(3.0)))
