"""Several workers with TF_CONFIG, as cloud examples write it."""
import json
import os
import tensorflow as tf

os.environ.setdefault("TF_CONFIG", json.dumps(
    {"cluster": {"worker": ["localhost:1234"]}, "task": {"type": "worker", "index": 0}}))
options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.NCCL)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
old = tf.distribute.experimental.MultiWorkerMirroredStrategy(
    tf.distribute.experimental.CollectiveCommunication.AUTO)
resolver = strategy.cluster_resolver
chief = resolver.task_type in (None, "chief") or resolver.task_id == 0
print(resolver.cluster_spec().as_dict(), strategy.extended.should_checkpoint)
for gpu in tf.config.experimental.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)  #: differs
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[0], "GPU")
tf.config.optimizer.set_jit(True)  #: differs
tf.config.threading.set_inter_op_parallelism_threads(2)  #: differs


def dataset_fn(context):
    size = context.get_per_replica_batch_size(64)
    data = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(100)
    return data.shard(context.num_input_pipelines, context.input_pipeline_id).batch(size)


data = strategy.distribute_datasets_from_function(dataset_fn)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    step = tf.Variable(0, aggregation=tf.VariableAggregation.SUM, synchronization=tf.VariableSynchronization.ON_READ)
    checkpoint = tf.train.Checkpoint(model=model, step=step)
handler = tf.distribute.experimental.PreemptionCheckpointHandler(resolver, checkpoint, "/tmp/c")  #: differs
with tf.distribute.experimental_set_strategy(strategy) or strategy.scope():
    pass
for batch in data:
    handler.run(strategy.run, lambda x: x, args=(batch,))
if chief:
    tf.saved_model.save(model, "/tmp/saved")  #: differs StableHLO
