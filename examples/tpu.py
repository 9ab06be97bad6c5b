"""Trains on a TPU, or on a CPU that simulates one, with Keras and with a custom loop.

usage: python examples/tpu.py [--cores 4] [--images 1500]

Without a TPU the program creates virtual CPU devices; `--cores` sets their number.

Only the line that imports TensorFlow differs from a program for TensorFlow.
"""

import argparse

import common
import numpy as np

import unisono as tf

STEPS = 5


def make_model():
    """Returns a network of two layers."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )


def connect(cores):
    """Returns a resolver of the TPU system, which is ready then."""
    if not tf.config.list_physical_devices("TPU"):
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(cores)]
        tf.config.set_logical_device_configuration(cpu, parts)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return resolver


def multiply(strategy):
    """Multiplies two matrices on every core."""
    a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    @tf.function
    def product(x, y):
        return tf.matmul(x, y)

    found = strategy.run(product, args=(a, b))
    return strategy.experimental_local_results(found)


def fit(strategy, train, test):
    """Trains with Keras, several steps in one call of the device."""
    with strategy.scope():
        model = make_model()
        model.compile(
            optimizer="adam",
            steps_per_execution=STEPS,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["sparse_categorical_accuracy"],
        )
    model.fit(train, epochs=2, verbose=0)
    return model.evaluate(test, verbose=0)


def loop(strategy, make_dataset):
    """Trains with a loop of its own, several steps in one compiled function."""
    batch = 16 * strategy.num_replicas_in_sync
    with strategy.scope():
        model = make_model()
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        loss_metric = tf.keras.metrics.Mean("loss", dtype=tf.float32)
    batches = strategy.distribute_datasets_from_function(
        lambda context: make_dataset(context.get_per_replica_batch_size(batch))
    )

    @tf.function
    def train_steps(iterator):
        """Trains on some batches."""

        def replica_step(inputs):
            images, labels = inputs
            with tf.GradientTape() as tape:
                scores = model(images, training=True)
                losses = tf.keras.losses.sparse_categorical_crossentropy(
                    labels, scores, from_logits=True
                )
                loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            loss_metric.update_state(loss * strategy.num_replicas_in_sync)

        for _ in tf.range(STEPS):
            strategy.run(replica_step, args=(next(iterator),))

    iterator = iter(batches)
    for _ in range(3):
        train_steps(iterator)
        print(f"step {optimizer.iterations.numpy()}: loss {loss_metric.result():.4f}")
        loss_metric.reset_state()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--images", type=int, default=1500)
    given = parser.parse_args()
    strategy = tf.distribute.TPUStrategy(connect(given.cores))
    print(f"cores: {strategy.num_replicas_in_sync}")
    products = multiply(strategy)
    print(f"a product on each of {len(products)} cores: {products[0].numpy().tolist()}")

    tf.keras.utils.set_random_seed(0)
    images, labels = common.load_digits(given.images)
    images = images / np.float32(16)

    def make_dataset(batch):
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        # The shapes of batches must not change on a TPU.
        return data.shuffle(given.images).repeat().batch(batch, drop_remainder=True)

    batch = 16 * strategy.num_replicas_in_sync
    train = make_dataset(batch).take(given.images // batch)
    test = make_dataset(batch).take(given.images // batch // 4)
    loss, accuracy = fit(strategy, train, test)
    print(f"Keras: loss {loss:.4f}, accuracy {accuracy:.3f}")
    loop(strategy, make_dataset)


if __name__ == "__main__":
    main()
