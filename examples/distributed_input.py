"""Distributes input in every way, and shows which replica gets which examples.

usage: python examples/distributed_input.py [--replicas 4]

Only the line that imports TensorFlow differs from a program for TensorFlow.
"""

import argparse

import unisono as tf


def sizes(strategy, value):
    """Returns the number of examples on each replica."""
    return [int(part.shape[0]) for part in strategy.experimental_local_results(value)]


def total(strategy, batch):
    """Returns the sum of the examples of a global batch."""
    sums = strategy.run(tf.reduce_sum, args=(batch,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)


def global_batches(strategy):
    """Splits batches of the global size over the replicas, with the uneven last one."""
    dataset = tf.data.Dataset.range(22).map(lambda x: tf.cast(x, tf.float32)).batch(8)
    distributed = strategy.experimental_distribute_dataset(dataset)

    @tf.function(input_signature=[distributed.element_spec])
    def add(batch):
        return total(strategy, batch)

    found = 0.0
    for batch in distributed:
        print("  examples per replica:", sizes(strategy, batch))
        found += float(add(batch))
    print(f"  sum {found}, expected {sum(range(22))}")
    assert found == sum(range(22))


def batches_of_each_replica(strategy):
    """Makes the dataset of each worker with a function, which batches and shards it."""

    def make_dataset(context):
        batch = context.get_per_replica_batch_size(8)
        dataset = tf.data.Dataset.range(32).shard(
            context.num_input_pipelines, context.input_pipeline_id
        )
        return dataset.batch(batch).prefetch(2)

    options = tf.distribute.InputOptions(experimental_fetch_to_device=True)
    distributed = strategy.distribute_datasets_from_function(make_dataset, options)
    iterator, steps = iter(distributed), 0
    while (element := iterator.get_next_as_optional()).has_value():
        steps += 1
        each = 8 // strategy.num_replicas_in_sync
        assert sizes(strategy, element.get_value()) == [each] * (8 // each)
    print(f"  {steps} steps of 8 examples")
    assert steps == 4


def policies(strategy):
    """Says how several workers share a dataset; one worker reads all of it."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    dataset = tf.data.Dataset.range(16).shuffle(16, seed=1).with_options(options)
    distributed = strategy.experimental_distribute_dataset(dataset.batch(8))
    seen = []
    for batch in distributed:
        for part in strategy.experimental_local_results(batch):
            seen += part.numpy().tolist()
    print(f"  in an order of its own: {seen}")
    assert sorted(seen) == list(range(16))


def loops(strategy):
    """Goes through batches in a compiled function: steps of an iterator, and all."""
    dataset = tf.data.Dataset.from_tensors(1.0).repeat(40).batch(8)
    distributed = strategy.experimental_distribute_dataset(dataset)

    @tf.function
    def three_steps(iterator):
        found = 0.0
        for _ in range(3):
            found += total(strategy, next(iterator))
        return found

    @tf.function
    def epoch(batches):
        found = 0.0
        for batch in batches:
            found += total(strategy, batch)
        return found

    print(f"  three steps {float(three_steps(iter(distributed)))}", end=", ")
    print(f"an epoch {float(epoch(distributed))}")
    assert float(epoch(distributed)) == 40


def values(strategy):
    """Makes a value for each replica with a function."""

    def make_value(context):
        return tf.constant(2.0) ** context.replica_id_in_sync_group

    found = strategy.experimental_distribute_values_from_function(make_value)
    made = [float(x) for x in strategy.experimental_local_results(found)]
    print(f"  {made}")
    assert made == [2.0**i for i in range(strategy.num_replicas_in_sync)]


def generated(strategy):
    """Reads what a Python generator makes."""

    def generate():
        for i in range(12):
            yield [float(i)]

    dataset = tf.data.Dataset.from_generator(
        generate, output_signature=tf.TensorSpec([1], tf.float32)
    )
    batches = strategy.experimental_distribute_dataset(dataset.batch(4))
    found = sum(float(total(strategy, batch)) for batch in batches)
    print(f"  sum {found}")
    assert found == sum(range(12))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    given = parser.parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(given.replicas)]
    tf.config.set_logical_device_configuration(cpu, parts)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(len(parts))])
    shown = global_batches, batches_of_each_replica, policies, loops, values, generated
    for show in shown:
        print(show.__doc__)
        show(strategy)
    print("all examples were read")


if __name__ == "__main__":
    main()
