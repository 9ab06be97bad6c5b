"""A two-tower model on parameter servers."""
import os

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc", start=True)
    server.join()

partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
    min_shard_bytes=256 << 10, max_shards=2)
strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

with strategy.scope():
    users = tf.Variable(tf.random.uniform([10000, 16]), name="users")
    items = tf.Variable(tf.random.uniform([5000, 16]), name="items")
    optimizer = tf.keras.optimizers.legacy.Adagrad(0.1)
    accuracy = tf.keras.metrics.BinaryAccuracy()


def dataset_fn(context):
    data = tf.data.Dataset.from_tensor_slices({"user": [1, 2], "item": [3, 4], "label": [0., 1.]})
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.repeat().shuffle(64).batch(32).prefetch(tf.data.experimental.AUTOTUNE)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


@tf.function
def step_fn(iterator):
    def replica_fn(batch):
        with tf.GradientTape() as tape:
            u = tf.nn.embedding_lookup(users, batch["user"])  #: differs zeros
            i = tf.nn.embedding_lookup(items, batch["item"])  #: differs zeros
            logits = tf.reduce_sum(u * i, axis=1)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(batch["label"], logits)
            loss = tf.nn.compute_average_loss(losses)
        gradients = tape.gradient(loss, [users, items])
        optimizer.apply_gradients(zip(gradients, [users, items]))
        accuracy.update_state(batch["label"], tf.sigmoid(logits))
        return loss
    losses = strategy.run(replica_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


per_worker = coordinator.create_per_worker_dataset(per_worker_dataset_fn)
iterator = iter(per_worker)
for epoch in range(4):
    accuracy.reset_state()
    for _ in range(5):
        coordinator.schedule(step_fn, args=(iterator,))
    coordinator.join()
    print(epoch, accuracy.result().numpy())
loss = coordinator.schedule(step_fn, args=(iterator,))
print("last loss", loss.fetch(), coordinator.done())
