"""A training run that may be killed at any moment and goes on where it was saved.

usage: python training.py DIRECTORY REPLICAS STEPS OPTIMIZER

Prints "running" when steps are being made, and at the end the state as JSON.
"""

import json
import sys

import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni


def batches(strategy):
    """Endless epochs of whole numbers, shuffled anew in each and read by a thread."""
    rows = np.random.default_rng(1).integers(-3, 4, (52, 4)).astype(np.float32)
    dataset = uni.data.Dataset.from_tensor_slices((rows, np.arange(52.0)))
    dataset = dataset.map(lambda row, number: (row * 1, number), num_parallel_calls=2)
    dataset = dataset.shuffle(20, seed=7).repeat().batch(8)
    return iter(strategy.experimental_distribute_dataset(dataset))


def main(directory, replicas, steps, optimizer_name):
    """Train up to a number of steps, from wherever a run before was saved."""
    uni.config.set_virtual_devices(max(2, replicas))
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    # Steps of a power of two on whole numbers are exact on any number of replicas.
    tx = optax.sgd(2.0**-6) if optimizer_name == "exact" else optax.adam(0.01)
    with strategy.scope():
        w = uni.Variable(jnp.zeros(4), name="w")
        ballast = uni.Variable(jnp.zeros((256, 1024)), name="ballast")
        optimizer = uni.optimizers.Optimizer(tx, [w])
        count = uni.metrics.Sum(name="count")
        numbers = uni.metrics.Sum(name="numbers")
    position = batches(strategy)
    checkpoint = uni.train.Checkpoint(
        w=w,
        ballast=ballast,
        optimizer=optimizer,
        count=count,
        numbers=numbers,
        position=position,
        steps=0,
    )
    manager = uni.train.CheckpointManager(checkpoint, directory, max_to_keep=3)
    manager.restore_or_initialize()

    @uni.function
    def step(batch):
        def one(x, number):
            grads = jnp.sum(x, axis=0) if tx_is_exact else jnp.mean(x - w, axis=0)
            optimizer.apply_gradients([(grads, w)])
            count.update_state(jnp.full(1, 1.0 / replicas))
            numbers.update_state(number)

        strategy.run(one, args=batch)
        ballast.assign_add(jnp.ones((256, 1024)))

    tx_is_exact = optimizer_name == "exact"
    options = uni.train.CheckpointOptions(enable_async=True)
    while checkpoint.steps < steps:
        step(next(position))
        checkpoint.steps += 1
        if checkpoint.steps % 2 == 0:
            manager.save(options=options if checkpoint.steps % 4 else None)
        print("running", flush=True)
    manager.sync()
    print(
        json.dumps(
            {
                "w": w.numpy().tobytes().hex(),
                "steps": checkpoint.steps,
                "count": round(float(count.result()), 3),
                "iterations": int(optimizer.iterations.numpy()),
                # The sum tells which examples were seen, of the epochs so far.
                "numbers": float(numbers.result()),
                "ballast": float(ballast.numpy().min()),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
