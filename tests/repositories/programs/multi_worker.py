"""One worker of a SageMaker-like job: TF_CONFIG, sharded input, chief duties, argparse."""

import argparse
import json
import os
import tempfile

import numpy as np
import tensorflow as tf


def parse_args(args=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", tempfile.mkdtemp()))
    parser.add_argument("--hosts", type=json.loads, default='["algo-1"]')
    parser.add_argument("--current-host", default="algo-1")
    return parser.parse_known_args(args)


def is_chief(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


def write_filepath(filepath, task_type, task_id):
    dirpath, base = os.path.dirname(filepath), os.path.basename(filepath)
    if not is_chief(task_type, task_id):
        dirpath = os.path.join(dirpath, "workertemp_" + str(task_id))
        tf.io.gfile.makedirs(dirpath)
    return os.path.join(dirpath, base)


def make_dataset(global_batch_size, input_context=None):
    rng = np.random.RandomState(24)
    x = rng.rand(32, 6).astype(np.float32)
    y = x.sum(1, keepdims=True)
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    batch_size = global_batch_size
    if input_context:
        dataset = dataset.shard(
            input_context.num_input_pipelines, input_context.input_pipeline_id
        )
        batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    return dataset.repeat().batch(batch_size)


def build_and_compile_model(learning_rate):
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((6,)),
            tf.keras.layers.Dense(8, activation="relu"),
            tf.keras.layers.Dense(1),
        ]
    )
    model.compile(
        loss="mse",
        optimizer=tf.keras.optimizers.SGD(learning_rate=learning_rate),
        metrics=["mae"],
    )
    rng = np.random.RandomState(25)
    model.set_weights([rng.normal(0, 0.4, w.shape) for w in model.get_weights()])
    return model


def main(args):
    tf_config = {
        "cluster": {"worker": ["localhost:{}".format(12345 + i) for i in range(len(args.hosts))]},
        "task": {"type": "worker", "index": args.hosts.index(args.current_host)},
    }
    os.environ["TF_CONFIG"] = json.dumps(tf_config)
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.AUTO
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    resolver = strategy.cluster_resolver
    print("Number of workers: {}".format(len(args.hosts)))
    print("task", resolver.task_type, resolver.task_id, json.loads(os.environ["TF_CONFIG"])["task"])
    num_workers = len(tf_config["cluster"]["worker"])
    global_batch_size = args.batch_size * num_workers
    with strategy.scope():
        multi_worker_dataset = strategy.distribute_datasets_from_function(
            lambda input_context: make_dataset(global_batch_size, input_context)
        )
        model = build_and_compile_model(args.learning_rate)
    history = model.fit(
        multi_worker_dataset, epochs=args.epochs, steps_per_epoch=4, verbose=0
    )
    print("loss", [float(x) for x in history.history["loss"]])
    task_type, task_id = resolver.task_type, resolver.task_id
    path = write_filepath(os.path.join(args.model_dir, "model.keras"), task_type, task_id)
    model.save(path)
    if is_chief(task_type, task_id):
        restored = tf.keras.models.load_model(path)
        print("restored", float(tf.reduce_sum(restored(tf.ones((1, 6))))))


if __name__ == "__main__":
    args, unknown = parse_args([])
    if isinstance(args.hosts, str):
        args.hosts = json.loads(args.hosts)
    try:
        main(args)
    finally:
        os.environ.pop("TF_CONFIG", None)
