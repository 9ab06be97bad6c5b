"""Model-agnostic meta-learning: gradients of gradients by tapes in tapes."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(23)


class SineModel(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden1 = tf.keras.layers.Dense(8, input_shape=(1,))
        self.hidden2 = tf.keras.layers.Dense(8)
        self.out = tf.keras.layers.Dense(1)

    def call(self, x):
        x = tf.keras.activations.tanh(self.hidden1(x))
        x = tf.keras.activations.tanh(self.hidden2(x))
        return self.out(x)


def forward(weights, x):
    w1, b1, w2, b2, w3, b3 = weights
    x = tf.tanh(tf.matmul(x, w1) + b1)
    x = tf.tanh(tf.matmul(x, w2) + b2)
    return tf.matmul(x, w3) + b3


def loss_function(pred_y, y):
    return tf.reduce_mean(tf.square(pred_y - y))


def compute_loss(weights, x, y):
    return loss_function(forward(weights, x), y)


def sample_task():
    amplitude, phase = rng.uniform(0.1, 5.0), rng.uniform(0, np.pi)
    x = rng.uniform(-5, 5, (2, 6, 1))
    return x.astype(np.float32), (amplitude * np.sin(x + phase)).astype(np.float32)


def inner_update(weights, x, y, lr_inner=0.01, steps=2):
    for _ in range(steps):
        with tf.GradientTape() as inner_tape:
            inner_tape.watch(weights)
            loss = compute_loss(weights, x, y)
        grads = inner_tape.gradient(loss, weights)
        weights = [w - lr_inner * g for w, g in zip(weights, grads)]
    return weights


model = SineModel()
model(tf.zeros((1, 1)))
model.set_weights([rng.normal(0, 0.5, w.shape) for w in model.get_weights()])
optimizer = tf.keras.optimizers.Adam(0.01)


@tf.function
def meta_step(xs, ys):
    with tf.GradientTape() as test_tape:
        total = 0.0
        for i in range(xs.shape[0]):
            weights = [tf.convert_to_tensor(w) for w in model.trainable_variables]
            fast = inner_update(weights, xs[i, 0], ys[i, 0])
            total += compute_loss(fast, xs[i, 1], ys[i, 1])
        total /= xs.shape[0]
    gradients = test_tape.gradient(total, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return total, tf.linalg.global_norm(gradients)


for step in range(4):
    tasks = [sample_task() for _ in range(3)]
    xs, ys = (np.stack(part) for part in zip(*tasks))
    loss, norm = meta_step(tf.constant(xs), tf.constant(ys))
    print("meta step {}: loss = {:.6f}, norm = {:.6f}".format(step, loss, norm))

# The same eagerly, with the model itself and a copy by deep assignment.
x, y = sample_task()
copied_model = SineModel()
copied_model(tf.zeros((1, 1)))
copied_model.set_weights(model.get_weights())
for _ in range(2):
    with tf.GradientTape() as tape:
        loss = loss_function(copied_model(x[0]), y[0])
    gradients = tape.gradient(loss, copied_model.trainable_variables)
    for variable, gradient in zip(copied_model.trainable_variables, gradients):
        variable.assign_sub(0.01 * gradient)
    print("fine-tuned", float(loss))

with tf.GradientTape() as outer:
    v = tf.constant([1.0, 2.0])
    outer.watch(v)
    with tf.GradientTape() as inner:
        inner.watch(v)
        z = tf.reduce_sum(v**3)
    first = inner.gradient(z, v)
print("hessian", outer.jacobian(first, v).numpy().tolist())
