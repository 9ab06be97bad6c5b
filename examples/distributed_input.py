"""Distributes input in every way, and shows which replica gets which examples.

usage: python examples/distributed_input.py [--replicas 4]

What changed from tf.distribute:

| TensorFlow                                        | here                         |
| ------------------------------------------------- | ---------------------------- |
| `tf.data.Dataset` and its transformations         | `uni.data.Dataset`, the same |
| functions in `map` are TensorFlow graphs          | they are Python on NumPy     |
| `experimental_distribute_dataset`                 | the same                     |
| `distribute_datasets_from_function`               | the same                     |
| `element_spec` as `input_signature`               | the same                     |
| `get_next_as_optional`                            | the same                     |
| a dataset is all that can be distributed          | also loaders and arrays      |
| no report of which replica gets what              | `describe()`                 |
| the position in the data is lost                  | `get_state`, `set_state`     |
"""

import argparse
import tempfile

import jax.numpy as jnp
import numpy as np

import unisono as uni


def sizes(strategy, value):
    """Returns the number of examples on each replica."""
    return [len(part) for part in strategy.experimental_local_results(value)]


def global_batches(strategy):
    """Splits batches of the global size over the replicas, with the uneven last one."""
    dataset = uni.data.Dataset.range(22).map(lambda x: x * 1.0).batch(8)
    distributed = strategy.experimental_distribute_dataset(dataset)

    @uni.function(input_signature=[distributed.element_spec])
    def total(batch):
        sums = strategy.run(jnp.sum, args=(batch,))
        return strategy.reduce("SUM", sums, axis=None)

    found = 0.0
    for batch in distributed:
        print("  examples per replica:", sizes(strategy, batch))
        found += float(total(batch))
    print(f"  sum {found}, expected {sum(range(22))}")
    assert found == sum(range(22))


def batches_of_each_replica(strategy):
    """Makes the dataset of each worker with a function, which batches and shards it."""

    def dataset_fn(context):
        size = context.get_per_replica_batch_size(8)
        dataset = uni.data.Dataset.range(32).shard(
            context.num_input_pipelines, context.input_pipeline_id
        )
        return dataset.batch(size)

    distributed = strategy.distribute_datasets_from_function(dataset_fn)
    iterator = iter(distributed)
    steps = 0
    while (element := iterator.get_next_as_optional()).has_value():
        steps += 1
        assert sizes(strategy, element.get_value()) == sizes(
            strategy, next_like(strategy)
        )
    print(f"  {steps} steps of 8 examples")
    assert steps == 4


def next_like(strategy):
    """Returns a value with equally many examples on each replica, 8 in all."""
    each = 8 // strategy.num_replicas_in_sync
    return strategy.experimental_distribute_values_from_function(
        lambda context: np.full(each, context.replica_id_in_sync_group)
    )


def files(strategy, directory):
    """Reads several files, which would be divided among several workers."""
    for number in range(4):
        with uni.io.TFRecordWriter(f"{directory}/part-{number}") as writer:
            for i in range(5):
                writer.write(np.float32(number * 5 + i).tobytes())
    names = uni.data.Dataset.list_files(f"{directory}/part-*", shuffle=False)
    dataset = uni.data.TFRecordDataset(names)
    dataset = dataset.map(lambda record: np.frombuffer(record, "float32")[0])
    options = uni.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        uni.data.experimental.AutoShardPolicy.FILE
    )
    dataset = dataset.with_options(options).batch(8)
    distributed = strategy.experimental_distribute_dataset(dataset)
    print("  " + str(distributed.describe()).replace("\n", "\n  "))
    seen = [strategy.gather(batch, axis=0) for batch in distributed]
    assert sorted(np.concatenate(seen)) == list(range(20))


def stop_and_go_on(strategy):
    """Stops in the middle of an epoch and continues on another number of replicas."""
    dataset = uni.data.Dataset.range(40).shuffle(40, seed=1).batch(8)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    for _ in range(2):
        next(iterator)
    position = iterator.get_state()
    wanted = [strategy.gather(batch, axis=0) for batch in iterator]
    one = uni.distribute.OneDeviceStrategy("CPU:0")
    rest = iter(one.experimental_distribute_dataset(dataset))
    rest.set_state(position)
    found = list(rest)
    assert len(found) == len(wanted) == 3
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted))
    print(f"  {len(found)} batches were left, and are the same on one device")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    given = parser.parse_args()
    uni.config.set_virtual_devices(given.replicas)
    names = [f"CPU:{i}" for i in range(given.replicas)]
    strategy = uni.distribute.MirroredStrategy(names)
    for show in (global_batches, batches_of_each_replica, stop_and_go_on):
        print(show.__doc__)
        show(strategy)
    print(files.__doc__)
    with tempfile.TemporaryDirectory() as directory:
        files(strategy, directory)
    print("all examples were read")


if __name__ == "__main__":
    main()
