"""Mixed precision, loss scaling, gradient accumulation, EMA and schedules in custom loops on 2 replicas."""

import numpy as np
import tensorflow as tf
from tensorflow import keras

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
rng = np.random.RandomState(0)
X = rng.randn(32, 5).astype("float32")
Y = rng.randint(0, 3, 32)


def build(dtype=None):
    m = keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(3, dtype="float32"),
        ]
    )
    m.set_weights(
        [
            np.random.RandomState(i).randn(*w.shape) * 0.4
            for i, w in enumerate(m.get_weights())
        ]
    )
    return m


keras.mixed_precision.set_global_policy("mixed_float16")
with strategy.scope():
    model = build()
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    opt = keras.mixed_precision.LossScaleOptimizer(
        inner, initial_scale=2.0**10, dynamic_growth_steps=3
    )
    opt.build(model.trainable_variables)
    loss_obj = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )
    acc = keras.metrics.SparseCategoricalAccuracy()
print(
    model.layers[0].compute_dtype,
    model.layers[0].variable_dtype,
    model.layers[0].dtype_policy.name,
)


def step(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = tf.nn.compute_average_loss(loss_obj(y, logits), global_batch_size=8)
        scaled = opt.scale_loss(loss)
    grads = tape.gradient(scaled, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
    acc.update_state(y, logits)
    return loss


@tf.function
def dist_step(batch):
    return strategy.reduce(
        tf.distribute.ReduceOp.SUM, strategy.run(step, args=(batch,)), axis=None
    )


ds = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
)
for e in range(2):
    losses = [dist_step(b).numpy() for b in ds]
    print(
        e,
        np.round(losses, 2),
        np.round(float(acc.result()), 4),
        float(opt.dynamic_scale.numpy()),
    )
    acc.reset_state()
keras.mixed_precision.set_global_policy("float32")


# Gradient accumulation by hand, as repositories write it.
class GradientAccumulator(object):
    def __init__(self):
        self._gradients = []
        self._accum_steps = None

    @property
    def step(self):
        if self._accum_steps is None:
            self._accum_steps = tf.Variable(
                tf.constant(0, dtype=tf.int64),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
        return self._accum_steps.value()

    @property
    def gradients(self):
        return [g.value() if g is not None else g for g in self._gradients]

    def __call__(self, gradients):
        if not self._gradients:
            _ = self.step
            self._gradients.extend(
                [
                    tf.Variable(
                        tf.zeros_like(g),
                        trainable=False,
                        synchronization=tf.VariableSynchronization.ON_READ,
                        aggregation=tf.VariableAggregation.NONE,
                    )
                    for g in gradients
                ]
            )
        for acc_g, g in zip(self._gradients, gradients):
            acc_g.assign_add(g)
        self._accum_steps.assign_add(1)

    def reset(self):
        self._accum_steps.assign(0)
        for g in self._gradients:
            g.assign(tf.zeros_like(g))


with strategy.scope():
    model = build()
    opt = keras.optimizers.Adam(1e-2)
    opt.build(model.trainable_variables)
    accum = GradientAccumulator()


def micro(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loss_obj(y, model(x, training=True))) / 16
    accum(tape.gradient(loss, model.trainable_variables))
    return loss


@tf.function
def accumulate(b):
    return strategy.reduce("SUM", strategy.run(micro, args=(b,)), axis=None)


@tf.function
def apply():
    def f():
        grads = [tf.clip_by_norm(g, 1.0) for g in accum.gradients]
        opt.apply_gradients(zip(grads, model.trainable_variables))
        accum.reset()

    strategy.run(f)


with strategy.scope():
    for i, b in enumerate(ds):
        l = accumulate(b)
        if (i + 1) % 2 == 0:
            print("accum %.5f" % l, int(accum.step))
            apply()
print(np.round([np.abs(w).sum() for w in model.get_weights()], 4))

# Built into the optimizer.
m = build()
o = keras.optimizers.SGD(
    0.1,
    gradient_accumulation_steps=2,
    use_ema=True,
    ema_momentum=0.9,
    ema_overwrite_frequency=None,
    clipnorm=1.0,
)
m.compile(o, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
h = m.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
print(np.round(h.history["loss"], 5), int(o.iterations.numpy()))
o.finalize_variable_values(m.trainable_variables)
print(np.round([np.abs(w).sum() for w in m.get_weights()], 4))

# Average of weights by hand: tf.train.ExponentialMovingAverage and swapping.
with strategy.scope():
    model = build()
    opt = keras.optimizers.SGD(0.2)
    opt.build(model.trainable_variables)
    ema_vars = [tf.Variable(v, trainable=False) for v in model.trainable_variables]
ema_decay = tf.constant(0.9)


@tf.function
def ema_step(b):
    def f(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(
                loss_obj(y, model(x)), global_batch_size=8
            )
        opt.apply_gradients(
            zip(
                tape.gradient(loss, model.trainable_variables),
                model.trainable_variables,
            )
        )
        return loss

    out = strategy.reduce("SUM", strategy.run(f, args=(b,)), axis=None)
    for e, v in zip(ema_vars, model.trainable_variables):
        e.assign(ema_decay * e + (1.0 - ema_decay) * v)
    return out


for b in ds:
    l = ema_step(b)
print(
    "%.5f" % l,
    np.round([float(tf.reduce_sum(tf.abs(e.read_value()))) for e in ema_vars], 4),
)
ema = tf.train.ExponentialMovingAverage(decay=0.99, num_updates=None)
v = tf.Variable(1.0)
ema.apply([v])
v.assign(3.0)
ema.apply([v])
print(np.round(ema.average(v).numpy(), 5))
S = keras.optimizers.schedules
for sch in (
    S.ExponentialDecay(0.1, 3, 0.5, staircase=True),
    S.PolynomialDecay(0.1, 5, 0.01, power=2.0, cycle=True),
    S.InverseTimeDecay(0.1, 2, 0.5),
    S.CosineDecay(0.1, 5, alpha=0.1, warmup_target=0.3, warmup_steps=2),
    S.CosineDecayRestarts(0.1, 3),
    S.PiecewiseConstantDecay([2, 4], [1.0, 0.5, 0.1]),
):
    print(type(sch).__name__, [round(float(sch(i)), 5) for i in range(8)])
for name, o in {
    "adamw": keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "lamb": keras.optimizers.Lamb(0.01),
    "lion": keras.optimizers.Lion(0.01),
    "nadam": keras.optimizers.Nadam(0.01),
    "adafactor": keras.optimizers.Adafactor(0.01),
    "ftrl": keras.optimizers.Ftrl(0.1),
    "adagrad": keras.optimizers.Adagrad(0.1),
    "adadelta": keras.optimizers.Adadelta(0.1),
    "rms": keras.optimizers.RMSprop(0.01, centered=True, momentum=0.5),
    "amsgrad": keras.optimizers.Adam(
        0.01, amsgrad=True, clipvalue=0.1, weight_decay=0.01
    ),
    "global": keras.optimizers.SGD(
        0.1, global_clipnorm=0.5, nesterov=True, momentum=0.9
    ),
}.items():
    v = tf.Variable([[1.0, -2.0], [0.5, 3.0]])
    for i in range(3):
        with tf.GradientTape() as t:
            l = tf.reduce_sum(v**3 * [[1.0, 2.0]])
        o.apply_gradients([(t.gradient(l, v), v)])
    print(name, np.round(v.numpy(), 4).tolist())
