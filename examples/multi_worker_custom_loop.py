"""Trains on several workers with a custom loop, and resumes after a restart.

usage: unisono launch -n 2 examples/multi_worker_custom_loop.py [--directory FOLDER]

Every worker runs this program. Without a launcher there is only one worker. A second
run with the same directory resumes where the first one stopped.

Only the line that imports TensorFlow differs from a program for TensorFlow. With
unisono all workers save together, and the chief writes. Each other worker gets a folder
of its own, which TensorFlow needs; with unisono it stays empty.
"""

import argparse
import os
import shutil
import tempfile

import common
import numpy as np

import unisono as tf

BATCH_PER_WORKER = 32
STEPS = 10


def make_dataset(context, images, labels):
    """Returns the batches of one worker, which reads its part of the examples."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    dataset = dataset.shuffle(500, seed=1).repeat()
    return dataset.batch(context.get_per_replica_batch_size(BATCH_PER_WORKER))


def make_model():
    """Returns a network of two layers; the same on every worker."""
    tf.keras.utils.set_random_seed(0)
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def choose_folder(folder, strategy):
    """Returns the folder to which a worker saves; the chief's is the one that stays."""
    task = strategy.cluster_resolver.task_id
    if strategy.cluster_resolver.task_type in (None, "chief") or not task:
        return folder
    return os.path.join(folder, f"worker_{task}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--directory", default=None, help="of the checkpoints")
    given = parser.parse_args()
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=300)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    workers = strategy.num_replicas_in_sync
    folder = given.directory or tempfile.mkdtemp()

    images, labels = common.load_digits(given.images)
    images = images / np.float32(16)
    with strategy.scope():
        batches = strategy.distribute_datasets_from_function(
            lambda context: make_dataset(context, images, labels)
        )
        model = make_model()
        optimizer = tf.keras.optimizers.Adam(learning_rate=0.01)
        optimizer.build(model.trainable_variables)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        losses = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=tf.keras.losses.Reduction.NONE
        )

    @tf.function
    def train_step(iterator):
        """Trains on the next batch and returns its loss."""

        def replica_step(inputs):
            images, labels = inputs
            with tf.GradientTape() as tape:
                scores = model(images, training=True)
                loss = tf.nn.compute_average_loss(
                    losses(labels, scores),
                    global_batch_size=BATCH_PER_WORKER * workers,
                )
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            accuracy.update_state(labels, scores)
            return loss

        found = strategy.run(replica_step, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, found, axis=None)

    with strategy.scope():
        epoch = tf.Variable(0, name="epoch")
        step = tf.Variable(0, name="step_in_epoch")
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=optimizer, epoch=epoch, step=step
    )
    target = choose_folder(folder, strategy)
    manager = tf.train.CheckpointManager(checkpoint, directory=target, max_to_keep=1)
    latest = tf.train.latest_checkpoint(folder)
    if latest:
        checkpoint.restore(latest)
        print(f"goes on after epoch {int(epoch.numpy())}")

    iterator = iter(batches)
    while epoch.numpy() < given.epochs:
        total = 0.0
        while step.numpy() < STEPS:
            total += train_step(iterator)
            step.assign_add(1)
        epoch.assign_add(1)
        step.assign(0)
        print(
            f"epoch {int(epoch.numpy())}: loss {total / STEPS:.4f}, accuracy "
            f"{accuracy.result():.3f}"
        )
        accuracy.reset_state()
        manager.save()
        if target != folder:
            shutil.rmtree(target, ignore_errors=True)
    if given.directory is None:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
