"""A TPU, with steps in a loop on the device."""
import tensorflow as tf

try:
    tpu = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="grpc://10.0.0.2")  #: differs
    tf.config.experimental_connect_to_cluster(tpu)
    tf.tpu.experimental.initialize_tpu_system(tpu)  #: differs
    strategy = tf.distribute.experimental.TPUStrategy(tpu)  #: differs
except ValueError:
    strategy = tf.distribute.get_strategy()
print(tpu.master(), strategy.num_replicas_in_sync, tf.config.list_logical_devices("TPU"))
BATCH = 16 * strategy.num_replicas_in_sync

with strategy.scope():
    model = tf.keras.applications.MobileNetV2(weights=None, classes=10)
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)
    loss_metric = tf.keras.metrics.Mean()
policy = tf.keras.mixed_precision.Policy("mixed_bfloat16")
tf.keras.mixed_precision.set_global_policy(policy)
tf.keras.mixed_precision.experimental.set_policy("mixed_bfloat16")  #: missing


def replica_step(images, labels):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, logits))
        loss = loss / strategy.num_replicas_in_sync
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [tf.clip_by_norm(g, 1.0) for g in grads]
    optimizer.apply_gradients(list(zip(grads, model.trainable_variables)))
    loss_metric.update_state(loss * strategy.num_replicas_in_sync)


@tf.function(experimental_relax_shapes=True)
def train_multiple_steps(iterator, steps):
    for _ in tf.range(steps):
        strategy.run(replica_step, args=next(iterator))


@tf.function
def eval_step(iterator):
    data = next(iterator)
    return strategy.experimental_run_v2(lambda x, y: model(x), args=data)


images = tf.zeros([BATCH, 32, 32, 3])
data = tf.data.Dataset.from_tensors((images, tf.zeros([BATCH], tf.int32))).repeat()
iterator = iter(strategy.experimental_distribute_dataset(data))
train_multiple_steps(iterator, tf.convert_to_tensor(10))
