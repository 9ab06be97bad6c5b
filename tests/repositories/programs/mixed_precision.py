"""Mixed precision with loss scaling: a custom loop with LossScaleOptimizer, bfloat16 layers."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, mixed_precision

rng = np.random.RandomState(28)
policy = mixed_precision.Policy("mixed_bfloat16")
mixed_precision.set_global_policy(policy)
print("Compute dtype: %s" % policy.compute_dtype, "Variable dtype: %s" % policy.variable_dtype)

inputs = keras.Input(shape=(8,), name="digits")
dense1 = layers.Dense(16, activation="relu", name="dense_1")
x = dense1(inputs)
x = layers.Dense(3, name="dense_logits")(x)
outputs = layers.Activation("softmax", dtype="float32", name="predictions")(x)
model = keras.Model(inputs=inputs, outputs=outputs)
print("kernel", dense1.kernel.dtype, "outputs", outputs.dtype)
mixed_precision.set_global_policy("float32")

master = keras.Sequential([keras.Input((8,)), layers.Dense(6, "tanh"), layers.Dense(3)])
master.set_weights([rng.normal(0, 0.3, w.shape) for w in master.get_weights()])
optimizer = keras.optimizers.RMSprop(1e-2)
optimizer = mixed_precision.LossScaleOptimizer(optimizer, initial_scale=1024.0, dynamic_growth_steps=3)
loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
x_train = rng.normal(size=(24, 8)).astype("float32")
y_train = rng.randint(0, 3, 24)
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(8)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        predictions = master(x)
        loss = loss_object(y, predictions)
        scaled_loss = optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled_loss, master.trainable_variables)
    optimizer.apply_gradients(zip(gradients, master.trainable_variables))
    return loss


for epoch in range(2):
    epoch_loss_avg = keras.metrics.Mean()
    for x, y in train_dataset:
        epoch_loss_avg(train_step(x, y))
    print("Epoch {}: loss={}".format(epoch, epoch_loss_avg.result()))
print("scale", float(optimizer.dynamic_scale), "steps", int(optimizer.step_counter))

half = tf.cast(tf.constant([1.0, 2.5, 3.1415926]), tf.bfloat16)
print("half", half.dtype.name, tf.cast(half * 2, tf.float32).numpy().tolist())
print("float16", tf.cast(tf.constant([0.1, 1000.0]), tf.float16).numpy().tolist())
