"""Gradient accumulation over micro-batches, with variables that hold the sums."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(29)
ACCUMULATE = 3


class GradientAccumulator(object):
    """Gradient accumulation utility, as in translation repositories."""

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
        if not self._gradients:
            raise ValueError("The accumulator should be called first")
        return list(
            gradient.value() if gradient is not None else gradient
            for gradient in self._gradients
        )

    def __call__(self, gradients):
        if not self._gradients:
            _ = self.step
            self._gradients.extend(
                [
                    tf.Variable(
                        tf.zeros_like(gradient),
                        trainable=False,
                        synchronization=tf.VariableSynchronization.ON_READ,
                        aggregation=tf.VariableAggregation.NONE,
                    )
                    if gradient is not None
                    else gradient
                    for gradient in gradients
                ]
            )
        if len(gradients) != len(self._gradients):
            raise ValueError("Expected %s gradients" % len(self._gradients))
        for accum_gradient, gradient in zip(self._gradients, gradients):
            if accum_gradient is not None and gradient is not None:
                accum_gradient.assign_add(gradient, read_value=False)
        self._accum_steps.assign_add(1)

    def reset(self):
        if not self._gradients:
            return
        self._accum_steps.assign(0)
        for gradient in self._gradients:
            if gradient is not None:
                gradient.assign(tf.zeros_like(gradient), read_value=False)


model = tf.keras.Sequential(
    [tf.keras.layers.Input((5,)), tf.keras.layers.Dense(6, "tanh"), tf.keras.layers.Dense(1)]
)
model.set_weights([rng.normal(0, 0.4, w.shape) for w in model.get_weights()])
optimizer = tf.keras.optimizers.Adam(0.02)
accumulator = GradientAccumulator()
x = rng.normal(size=(36, 5)).astype(np.float32)
y = x[:, :1] * 2 - 1
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)


@tf.function
def forward(features, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(features, training=True) - labels))
    gradients = tape.gradient(loss, model.trainable_variables)
    accumulator(gradients)
    return loss


@tf.function
def step():
    gradients = [g / tf.cast(accumulator.step, tf.float32) for g in accumulator.gradients]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    accumulator.reset()


for n, (features, labels) in enumerate(dataset):
    loss = forward(features, labels)
    if (n + 1) % ACCUMULATE == 0:
        print("step", n, "count", int(accumulator.step), "loss", float(loss))
        step()

# The same in one function: a branch on a variable decides.
counter = tf.Variable(0, trainable=False)
sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable_variables]
sgd = tf.keras.optimizers.SGD(0.1)


def apply_accu_gradients():
    sgd.apply_gradients(zip([s / ACCUMULATE for s in sums], model.trainable_variables))
    counter.assign(0)
    for s in sums:
        s.assign(tf.zeros_like(s))


sgd.build(model.trainable_variables)


@tf.function
def train_step(features, labels):
    counter.assign_add(1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(features, training=True) - labels))
    for s, g in zip(sums, tape.gradient(loss, model.trainable_variables)):
        s.assign_add(g)
    tf.cond(tf.equal(counter, ACCUMULATE), apply_accu_gradients, lambda: None)
    return loss


for n, (features, labels) in enumerate(dataset):
    print(n, int(counter), float(train_step(features, labels)))
