"""An exponential moving average of weights, swapped in for evaluation; a momentum encoder."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(30)
x = rng.normal(size=(32, 4)).astype(np.float32)
y = (x @ rng.normal(size=(4, 1))).astype(np.float32)


class Linear(tf.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.kernel = tf.Variable(tf.fill([4, 1], 0.1), name="kernel")
        self.bias = tf.Variable([0.1], name="bias")

    def __call__(self, inputs):
        return inputs @ self.kernel + self.bias


def build():
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    model.set_weights([np.full(w.shape, 0.1) for w in model.get_weights()])
    return model


model, target = Linear(), Linear(name="target")
optimizer = tf.keras.optimizers.SGD(
    tf.keras.optimizers.schedules.CosineDecay(0.1, decay_steps=12, alpha=0.1)
)
ema = tf.train.ExponentialMovingAverage(decay=0.9)
ema.apply(model.trainable_variables)


@tf.function
def update_target(tau):
    for mine, theirs in zip(target.variables, model.variables):
        mine.assign(tau * theirs + (1.0 - tau) * mine)


@tf.function
def train_step(features, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.math.squared_difference(model(features), labels))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    ema.apply(variables)
    return loss


def evaluate(net):
    return float(tf.reduce_mean(tf.square(net(x) - y)))


for epoch in range(3):
    for i in range(4):
        loss = train_step(x[i * 8 : i * 8 + 8], y[i * 8 : i * 8 + 8])
        update_target(tf.constant(0.2))
    kept = [v.numpy() for v in model.trainable_variables]
    own = evaluate(model)
    for v in model.trainable_variables:
        v.assign(ema.average(v))
    averaged = evaluate(model)
    for v, old in zip(model.trainable_variables, kept):
        v.assign(old)
    print(f"epoch {epoch} loss {float(loss)} own {own} averaged {averaged} target {evaluate(target)}")

keras_ema = build()
keras_ema.compile(tf.keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.8), "mse")
history = keras_ema.fit(x, y, epochs=2, batch_size=8, shuffle=False, verbose=0)
keras_ema.optimizer.finalize_variable_values(keras_ema.trainable_variables)
print("keras", [float(v) for v in history.history["loss"]], evaluate(keras_ema))
