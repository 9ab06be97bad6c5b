"""A recommender on parameter servers: a coordinator schedules steps that pull their input."""

import json
import os
import socket

import numpy as np
import tensorflow as tf


def pick_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("localhost", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def create_in_process_cluster(num_workers, num_ps):
    ports = pick_ports(num_workers + num_ps)
    cluster_dict = {"worker": [f"localhost:{p}" for p in ports[:num_workers]]}
    cluster_dict["ps"] = [f"localhost:{p}" for p in ports[num_workers:]]
    cluster_spec = tf.train.ClusterSpec(cluster_dict)
    for i in range(num_workers):
        tf.distribute.Server(
            cluster_spec, job_name="worker", task_index=i, protocol="grpc"
        )
    for i in range(num_ps):
        tf.distribute.Server(cluster_spec, job_name="ps", task_index=i, protocol="grpc")
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster_spec, rpc_layer="grpc"
    )


os.environ["GRPC_FAIL_FAST"] = "use_caller"
NUM_PS = 2
cluster_resolver = create_in_process_cluster(1, NUM_PS)
strategy = tf.distribute.ParameterServerStrategy(cluster_resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

rng = np.random.RandomState(14)
users = rng.randint(0, 10, 96).astype(np.int64)
items = rng.randint(0, 16, 96).astype(np.int64)
labels = rng.rand(96).astype(np.float32)

with strategy.scope():
    user_in = tf.keras.Input((), dtype=tf.int64)
    item_in = tf.keras.Input((), dtype=tf.int64)
    user_layer = tf.keras.layers.Embedding(10, 4, name="users")
    dot = tf.keras.layers.Dot(axes=1)(
        [user_layer(user_in), tf.keras.layers.Embedding(16, 4, name="items")(item_in)]
    )
    model = tf.keras.Model([user_in, item_in], tf.keras.layers.Dense(1, "sigmoid")(dot))
    for w in model.weights:
        w.assign(rng.normal(0, 0.3, w.shape).astype(np.float32))
    optimizer = tf.keras.optimizers.SGD(0.2)
    optimizer.build(model.trainable_variables)
    loss_metric = tf.keras.metrics.Mean(name="loss")


def dataset_fn(input_context):
    global_batch_size = 16
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = tf.data.Dataset.from_tensor_slices((users, items, labels)).repeat()
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(batch_size).prefetch(2)


@tf.function
def step_fn(iterator):
    def replica_fn(user, item, label):
        with tf.GradientTape() as tape:
            pred = tf.squeeze(model([user, item], training=True), axis=1)
            loss = tf.reduce_mean(tf.square(pred - label))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        loss_metric.update_state(loss)
        return loss

    user, item, label = next(iterator)
    losses = strategy.run(replica_fn, args=(user, item, label))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


per_worker_dataset = coordinator.create_per_worker_dataset(per_worker_dataset_fn)
per_worker_iterator = iter(per_worker_dataset)
print("variables", json.dumps([list(v.shape) for v in model.trainable_variables]))
for epoch in range(3):
    loss_metric.reset_state()
    for _ in range(6):
        last = coordinator.schedule(step_fn, args=(per_worker_iterator,))
    coordinator.join()
    print("Finished epoch %d, mean %.6f, last %.6f." % (epoch, loss_metric.result(), last.fetch()))
print("weights", [float(np.sum(w)) for w in model.get_weights()])
