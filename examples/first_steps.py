"""Trains a classifier on eight virtual devices: the program of the README.

usage: python examples/first_steps.py
"""

# The program
import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni

strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(8)])

with strategy.scope():
    w = uni.Variable(jnp.zeros((20, 3)), name="w")
    b = uni.Variable(jnp.zeros(3), name="b")
    optimizer = uni.optimizers.Optimizer(optax.adam(1e-1), [w, b])


@uni.function
def train_step(x, y):
    def replica_step(x, y):  # Runs once per replica, on its part of the batch.
        with uni.GradientTape() as tape:
            losses = optax.softmax_cross_entropy_with_integer_labels(x @ w + b, y)
            loss = uni.nn.compute_average_loss(losses, global_batch_size=64)
        gradients = tape.gradient(loss, [w, b])
        optimizer.apply_gradients(zip(gradients, [w, b]))  # Sums over the replicas.
        return loss

    return strategy.reduce("SUM", strategy.run(replica_step, args=(x, y)), axis=None)


rng = np.random.default_rng(0)
x = rng.normal(size=(500, 20)).astype("float32")
y = np.argmax(x[:, :3], axis=1)
dataset = uni.data.Dataset.from_tensor_slices((x, y)).shuffle(500, seed=1).batch(64)
for epoch in range(3):
    batches = strategy.experimental_distribute_dataset(dataset)
    losses = [train_step(x, y) for x, y in batches]  # The last batch has 52 examples.
    print(f"epoch {epoch + 1}: loss {64 * np.sum(losses) / 500:.3f}")
