"""Values that must not change later, closures, side effects, and order of assignments."""

import numpy as np
import tensorflow as tf

s = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def show(name, fn):
    try:
        print(name, tf.nest.map_structure(lambda v: np.asarray(v).tolist(), fn()))
    except Exception as e:
        print(name, type(e).__name__)


v = tf.Variable(1.0)


def a():
    x = v.read_value()
    v.assign_add(1.0)
    return x, v.read_value()


show("read", a)
show("read fn", lambda: tf.function(a)())


def b():
    x = v.value()
    v.assign_add(1.0)
    return x + 0, v


show("value fn", lambda: tf.function(b)())


def c():
    x = tf.identity(v)
    y = tf.convert_to_tensor(v)
    v.assign(100.0)
    return x, y


show("identity fn", lambda: tf.function(c)())
show("identity", c)


def d():
    old = [v, v.assign_add(1.0), v]
    return old[0] + 0.0, old[1] + 0.0


show("assign ret", d)
show("assign ret fn", lambda: tf.function(d)())
w = tf.Variable([1.0, 2.0, 3.0])


def e():
    n = w.numpy()
    w.assign(w * 2)
    return n


show("numpy alias", e)
arr = np.ones(3, "float32")
t = tf.constant(arr)
u = tf.convert_to_tensor(arr)
z = tf.Variable(arr)
arr[:] = 7
show("np alias", lambda: (t, u * 1, z))


def f():
    x = w[0:2]
    w[0].assign(50.0)
    return x, w


show("slice assign", f)
show("slice assign fn", lambda: tf.function(f)())


def g():
    outs = []
    for i in range(3):
        outs.append(v)
        v.assign_add(1.0)
    return [o + 0.0 for o in outs]


v.assign(0.0)
show("list of var", g)
v.assign(0.0)
show("list of var fn", lambda: tf.function(g)())


def h():
    r = v + 0.0
    with tf.control_dependencies([v.assign(5.0)]):
        q = tf.identity(v)
    return r, q


v.assign(1.0)
show("deps", h)
v.assign(1.0)
show("deps fn", lambda: tf.function(h)())
scale = 2.0


@tf.function
def k(x):
    return x * scale


r1 = k(tf.constant(1.0))
scale = 3.0
show("closure baked", lambda: (r1, k(tf.constant(1.0)), k(tf.constant([1.0]))))
log = []


@tf.function
def side(x):
    log.append(1)
    return x + len(log)


show(
    "side", lambda: (side(tf.constant(1)), side(tf.constant(1)), side(tf.constant(1.0)))
)
cnt = {"n": 0}


@tf.function
def side2(x):
    cnt["n"] += 1
    return x


side2(1)
side2(1)
side2(2)
side2(tf.constant(1))
side2(tf.constant(5))
print("traces", cnt["n"])


class Holder:
    def __init__(self):
        self.state = tf.zeros([2])

    @tf.function
    def step(self, x):
        new = self.state + x
        return new


hd = Holder()
o1 = hd.step(tf.ones([2]))
hd.state = o1
o2 = hd.step(tf.ones([2]))
show("attr", lambda: (o1, o2))


@tf.function
def rnn(xs):
    st = tf.zeros([2])
    outs = []
    for x in tf.unstack(xs):
        st = st + x
        outs.append(st)
    return tf.stack(outs), st


show("rnn", lambda: rnn(tf.ones([3, 2])))


@tf.function
def acc_in_loop(n):
    for i in tf.range(n):
        v.assign_add(tf.cast(i, tf.float32))
        if v > 4.0:
            v.assign(0.0)
    return v


v.assign(0.0)
show("loop var", lambda: (acc_in_loop(tf.constant(5)), v))


@tf.function
def cond_assign(x):
    if x > 0:
        v.assign(x)
        y = x * 2
    else:
        v.assign(-x)
        y = x * 3
    return y, v


show(
    "cond var",
    lambda: (cond_assign(tf.constant(2.0)), cond_assign(tf.constant(-4.0)), v),
)


@tf.function
def swap():
    a_, b_ = p.read_value(), q.read_value()
    p.assign(b_)
    q.assign(a_)


p, q = tf.Variable(1.0), tf.Variable(2.0)
swap()
show("swap", lambda: (p, q))


@tf.function
def bad_swap():
    tmp = p
    p.assign(q)
    q.assign(tmp)


bad_swap()
show("bad swap", lambda: (p, q))
with s.scope():
    mv = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)
    on = tf.Variable(
        0.0,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def rep():
    old = mv + 0.0
    ref = mv
    mv.assign_add(2.0)
    on.assign_add(old)
    return old, ref + 0.0, on.read_value()


show("rep", lambda: [s.experimental_local_results(x) for x in s.run(rep)])
show(
    "rep fn",
    lambda: [
        s.experimental_local_results(x) for x in tf.function(lambda: s.run(rep))()
    ],
)


def rep_ret():
    mv.assign_add(1.0)
    return mv.read_value()


x1 = s.run(rep_ret)
x2 = s.run(rep_ret)
show(
    "rep values",
    lambda: (s.experimental_local_results(x1), s.experimental_local_results(x2)),
)
o = s.experimental_local_results(on)
on_before = on.read_value()
s.run(lambda: on.assign_add(1.0))
show("onread before", lambda: (on_before, on.read_value()))
m = tf.keras.metrics.Mean()
m.update_state(2.0)
r = m.result()
m.update_state(6.0)
m.reset_state()
show("metric result", lambda: (r, m.result()))
opt = tf.keras.optimizers.SGD(1.0)
lr_before = (
    opt.learning_rate
    if not hasattr(opt.learning_rate, "numpy")
    else opt.learning_rate.numpy()
)
opt.learning_rate = 0.5
show("lr", lambda: (lr_before, opt.learning_rate.numpy()))
lay = tf.keras.layers.Dense(1, kernel_initializer="ones")
lay.build((None, 2))
gw = lay.get_weights()
kk = lay.kernel.numpy()
lay.kernel.assign([[5.0], [5.0]])
show("weights copy", lambda: (gw[0], kk, lay.kernel))
mdl = tf.keras.Sequential([tf.keras.Input((2,)), lay])
before = [tf.identity(x) for x in mdl.trainable_variables]
w_list = mdl.trainable_variables
lay.kernel.assign([[6.0], [6.0]])
show("identity weights", lambda: (before[0], w_list[0]))
target = [tf.Variable(x) for x in mdl.trainable_variables]
lay.kernel.assign([[7.0], [7.0]])
show("var of var", lambda: target[0])
dv = tf.Variable(v)
v.assign(123.0)
show("copy var", lambda: dv)
import copy

cp = copy.deepcopy(v)
v.assign(1.0)
show("deepcopy", lambda: cp)
ck = tf.train.Checkpoint(v=v)
import tempfile

pth = ck.write(tempfile.mkdtemp() + "/c")
v.assign(99.0)
ck.read(pth)
show("ckpt", lambda: v)
ta = tf.TensorArray(tf.float32, 2, clear_after_read=False)
ta1 = ta.write(0, 1.0)
ta2 = ta1.write(1, 2.0)
show("ta", lambda: ta2.stack())


@tf.function
def g2(ds):
    best = tf.constant(-1.0)
    idx = tf.constant(-1)
    for i, x in ds.enumerate():
        if x > best:
            best = x
            idx = tf.cast(i, tf.int32)
        elif x < -5.0:
            continue
        if x == 42.0:
            break
    return best, idx


show(
    "ds loop",
    lambda: g2(tf.data.Dataset.from_tensor_slices([1.0, 7.0, -9.0, 42.0, 50.0])),
)
