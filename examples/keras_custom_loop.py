"""Trains a Keras model with a custom loop: distributed input, metrics, a schedule.

usage: python examples/keras_custom_loop.py [--replicas 4] [--epochs 3] [--images 1500]

What changed from tf.distribute:

| TensorFlow                                  | here                                |
| ------------------------------------------- | ----------------------------------- |
| `@tf.function`                              | `@uni.function`                     |
| `tf.data.Dataset`, distributed              | `uni.data.Dataset`, the same        |
| `with tf.GradientTape() as tape: loss = …`  | `uni.value_and_grad(loss_fn, vars)` |
| `tape.gradient(loss, vars)`                 | part of the line above              |
| `optimizer.apply_gradients(…)`              | the same; sums over the replicas    |
| `strategy.run`, `strategy.reduce`           | the same                            |
| `metric.update_state` in the step, `result` | the same                            |
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras_fit as common
import numpy as np

import unisono as uni

GLOBAL_BATCH = common.GLOBAL_BATCH


def train(strategy, keras, data, epochs):
    """Trains a model; returns the mean loss of each epoch and the last accuracy."""
    with strategy.scope():
        keras.utils.set_random_seed(0)
        layers = keras.layers
        hidden = layers.Dense(64, activation="relu")
        model = keras.Sequential(
            [layers.Input((8, 8, 1)), layers.Flatten(), hidden, layers.Dense(10)]
        )
        rate = keras.optimizers.schedules.ExponentialDecay(3e-3, 100, 0.9)
        optimizer = keras.optimizers.Adam(rate)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        loss_object = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )

    @uni.function
    def train_step(inputs):
        def replica_step(inputs):
            images, labels = inputs

            def loss_fn():
                logits = model(images, training=True)
                accuracy.update_state(labels, logits)
                return uni.nn.compute_average_loss(
                    loss_object(labels, logits), global_batch_size=GLOBAL_BATCH
                )

            variables = model.trainable_variables
            loss, gradients = uni.value_and_grad(loss_fn, variables)()
            optimizer.apply_gradients(zip(gradients, variables))
            return loss

        losses = strategy.run(replica_step, args=(inputs,))
        return strategy.reduce("SUM", losses, axis=None)

    dataset = uni.data.Dataset.from_tensor_slices(data)
    dataset = dataset.shuffle(len(data[0]), seed=1).batch(GLOBAL_BATCH)
    distributed = strategy.experimental_distribute_dataset(dataset)
    means = []
    for _ in range(epochs):
        accuracy.reset_state()
        means.append(float(np.mean([train_step(inputs) for inputs in distributed])))
    return means, float(accuracy.result())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=1500)
    given = parser.parse_args()
    names = [f"CPU:{i}" for i in range(given.replicas)]
    many = uni.distribute.MirroredStrategy(names)
    one = uni.distribute.OneDeviceStrategy("CPU:0")
    import keras

    data = common.load_digits(given.images)
    found = [train(s, keras, data, given.epochs) for s in (one, many)]
    for epoch, pair in enumerate(zip(*(losses for losses, _ in found))):
        print(f"epoch {epoch}: loss {pair[0]:.6f} and {pair[1]:.6f}")
    print(f"accuracy {found[0][1]:.4f} and {found[1][1]:.4f}")
    assert np.allclose(found[0][0], found[1][0], rtol=1e-3), found


if __name__ == "__main__":
    main()
