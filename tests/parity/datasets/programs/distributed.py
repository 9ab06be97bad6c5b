"""Distributed datasets beyond splitting: iteration, from_function, numpy datasets."""

import numpy as np

from tests.parity.datasets.kit import (
    error,
    fresh_mirrored,
    generated,
    mirrored,
    plain,
    program,
    spec,
    step,
    steps,
)

COUNTS = (1, 2, 4)


def _distributed(tf, dataset, n):
    strategy = mirrored(tf, n)
    return strategy, strategy.experimental_distribute_dataset(dataset)


def _per_count(tf, measure, counts=COUNTS):
    return {str(n): measure(mirrored(tf, n)) for n in counts}


@program("H02")
def iterated_again(tf, tmp):
    strategy, distributed = _distributed(tf, tf.data.Dataset.range(6).batch(4), 2)
    return [steps(strategy, distributed), steps(strategy, distributed)]


@program("H02")
def iterated_by_next(tf, tmp):
    strategy, distributed = _distributed(tf, tf.data.Dataset.range(3).batch(2), 2)
    it = iter(distributed)
    found = [step(strategy, next(it)), step(strategy, next(it))]
    return [*found, error(lambda: next(it)), error(lambda: next(it))]


@program("H02")
def iterated_by_optionals(tf, tmp):
    found = {}
    for n in COUNTS:
        strategy, distributed = _distributed(tf, tf.data.Dataset.range(3).batch(2), n)
        it = iter(distributed)
        full = [it.get_next_as_optional() for _ in range(2)]
        empty = it.get_next_as_optional()
        found[n] = [
            *(bool(optional.has_value()) for optional in (*full, empty)),
            *(step(strategy, optional.get_value()) for optional in full),
        ]
    return found


@program("H03")
def no_further_transformations(tf, tmp):
    _, distributed = _distributed(tf, tf.data.Dataset.range(2).batch(2), 2)
    names = ("map", "batch", "take", "filter", "repeat", "cardinality", "element_spec")
    return {name: hasattr(distributed, name) for name in names}


@program("H01")
def one_replica_gets_plain_elements(tf, tmp):
    value = {"a": np.arange(3, dtype=np.int32), "b": (np.ones(3, np.float32),)}
    dataset = tf.data.Dataset.from_tensor_slices(value)
    _, distributed = _distributed(tf, dataset, 1)
    return [plain(x) for x in distributed]


@program("H05")
def structures_are_split_leaf_by_leaf(tf, tmp):
    value = {"a": np.arange(5), "b": (np.arange(10).reshape(5, 2),)}
    dataset = tf.data.Dataset.from_tensor_slices(value).batch(4)
    return {n: steps(*_distributed(tf, dataset, n)) for n in (2, 4)}


@program("H05")
def empty_parts_keep_shape_and_type(tf, tmp):
    value = (np.ones((1, 3), np.float32), np.ones((1, 2, 2), np.int32))
    strategy, distributed = _distributed(
        tf, tf.data.Dataset.from_tensor_slices(value).batch(4), 4
    )
    found = []
    for leaf in next(iter(distributed)):
        parts = map(np.asarray, strategy.experimental_local_results(leaf))
        found.append([f"{part.shape} {part.dtype.name}" for part in parts])
    return found


@program("H23")
def specs_of_distributed_datasets(tf, tmp):
    value = {"a": np.ones((8, 3), np.float32), "b": (np.arange(8),)}
    dataset = tf.data.Dataset.from_tensor_slices(value)

    def measure(strategy):
        return [
            spec(strategy.experimental_distribute_dataset(d).element_spec)
            for d in (
                dataset.batch(4),
                dataset.batch(4, drop_remainder=True),
                dataset.batch(6, drop_remainder=True),
                dataset.batch(8, drop_remainder=True),
            )
        ]

    return _per_count(tf, measure)


@program("H01")
def cardinalities_of_distributed_datasets(tf, tmp):
    numbers = tf.data.Dataset.range(10).batch(4)

    def measure(strategy):
        return [
            int(strategy.experimental_distribute_dataset(d).cardinality)
            for d in (numbers, numbers.repeat(), numbers.filter(lambda x: x[0] > 3))
        ]

    return _per_count(tf, measure)


@program("H01")
def other_strategies(tf, tmp):
    dataset = tf.data.Dataset.range(6).batch(4)
    one = tf.distribute.OneDeviceStrategy("CPU:1")
    central = tf.distribute.experimental.CentralStorageStrategy(
        ["CPU:0", "CPU:1"], "CPU:0"
    )
    default = tf.distribute.get_strategy()
    return {
        "one device": steps(one, one.experimental_distribute_dataset(dataset)),
        "central storage": steps(
            central, central.experimental_distribute_dataset(dataset)
        ),
        "default": default.experimental_distribute_dataset(dataset) is dataset,
    }


@program("I01")
def other_strategies_from_function(tf, tmp):
    def make(context):
        return tf.data.Dataset.range(8).batch(2)

    one = tf.distribute.OneDeviceStrategy("CPU:1")
    central = tf.distribute.experimental.CentralStorageStrategy(
        ["CPU:0", "CPU:1"], "CPU:0"
    )
    return [
        steps(s, s.experimental_distribute_datasets_from_function(make))
        for s in (one, central)
    ]


@program("H01")
def things_that_cannot_be_distributed(tf, tmp):
    strategy, distributed = _distributed(tf, tf.data.Dataset.range(2).batch(2), 2)
    return error(lambda: strategy.experimental_distribute_dataset(distributed))


@program("H01")
def a_generator_that_fails_in_mid_epoch(tf, tmp):
    def generate():
        yield np.arange(4)
        yield np.arange(4)
        raise KeyError("lost")

    dataset = tf.data.Dataset.from_generator(
        generate, output_signature=tf.TensorSpec((None,), "int64")
    )
    return {n: steps(*_distributed(tf, dataset, n)) for n in COUNTS}


def _functions(tf):
    """The datasets that a dataset function may return, by name."""
    numbers = tf.data.Dataset.range
    return {
        "scalars": lambda: numbers(6),
        "scalars left over": lambda: numbers(5),
        "batches": lambda: numbers(8).batch(2),
        "a partial batch": lambda: numbers(7).batch(2),
        "batches left over": lambda: numbers(9).batch(2),
        "whole batches": lambda: numbers(8).batch(2, drop_remainder=True),
        "whole batches left over": lambda: numbers(12).batch(2, drop_remainder=True),
        "static and dynamic": lambda: tf.data.Dataset.zip(
            (numbers(5), numbers(10).batch(2))
        ),
        "dicts": lambda: tf.data.Dataset.from_tensor_slices(
            {"a": np.arange(5), "b": np.arange(10).reshape(5, 2)}
        ).batch(2),
        "infinite": lambda: numbers(3).repeat().batch(2),
        "infinite, partial": lambda: numbers(3).batch(2).repeat(),
        "empty": lambda: numbers(0).batch(2),
        "any length": lambda: generated(tf, ([1, 2], [], [3], [4, 5, 6], [7])),
        "unknown number": lambda: numbers(5).filter(lambda x: x >= 0),
    }


@program("I01", "I02", "I03", "I13")
def from_function(tf, tmp):
    def measure(strategy):
        found = {}
        for name, make in _functions(tf).items():
            distributed = strategy.experimental_distribute_datasets_from_function(
                lambda context, make=make: make()
            )
            found[name] = {
                "spec": spec(distributed.element_spec),
                "steps": steps(strategy, distributed, limit=6),
            }
        return found

    return _per_count(tf, measure)


@program("I01")
def from_function_under_its_later_name(tf, tmp):
    strategy = mirrored(tf, 2)
    return steps(
        strategy,
        strategy.distribute_datasets_from_function(
            lambda context: tf.data.Dataset.range(4).batch(2)
        ),
    )


@program("I04", "I05", "I06")
def input_contexts(tf, tmp):
    def measure(strategy):
        seen = []

        def make(context):
            seen.append(
                [
                    context.num_input_pipelines,
                    context.input_pipeline_id,
                    context.num_replicas_in_sync,
                    context.get_per_replica_batch_size(8),
                    error(lambda: context.get_per_replica_batch_size(7)),
                ]
            )
            return tf.data.Dataset.range(8).batch(context.get_per_replica_batch_size(8))

        distributed = strategy.experimental_distribute_datasets_from_function(make)
        return [seen, steps(strategy, distributed)]

    return _per_count(tf, measure)


@program("I09")
def sharded_by_hand(tf, tmp):
    def measure(strategy):
        return steps(
            strategy,
            strategy.experimental_distribute_datasets_from_function(
                lambda c: (
                    tf.data.Dataset.range(8)
                    .shard(c.num_input_pipelines, c.input_pipeline_id)
                    .batch(c.get_per_replica_batch_size(4))
                )
            ),
        )

    return _per_count(tf, measure)


@program("I02")
def from_function_iterated_again(tf, tmp):
    strategy = mirrored(tf, 2)
    calls = []

    def make(context):
        calls.append(1)
        return tf.data.Dataset.range(4).batch(2)

    distributed = strategy.experimental_distribute_datasets_from_function(make)
    return [steps(strategy, distributed), steps(strategy, distributed), len(calls)]


@program("H19", "I01")
def one_pipeline_per_replica(tf, tmp):
    strategy = fresh_mirrored(tf, 2)
    seen = []

    def make(context):
        seen.append([context.num_input_pipelines, context.input_pipeline_id])
        start = 10 * context.input_pipeline_id
        return tf.data.Dataset.range(start, start + 4).batch(2)

    options = tf.distribute.InputOptions(
        experimental_fetch_to_device=False,
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
    )
    distributed = strategy.distribute_datasets_from_function(make, options)
    return [steps(strategy, distributed), seen]


@program("H19")
def options_that_do_not_fit(tf, tmp):
    strategy = fresh_mirrored(tf, 2)
    per_replica = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA
    )
    placed = tf.distribute.InputOptions(experimental_place_dataset_on_device=True)

    def make(context=None):
        return tf.data.Dataset.range(4).batch(2)

    return [
        error(lambda: strategy.experimental_distribute_dataset(make(), per_replica)),
        error(lambda: strategy.distribute_datasets_from_function(make, placed)),
    ]


@program("H19")
def values_left_on_the_host(tf, tmp):
    strategy = mirrored(tf, 2)
    options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    return steps(
        strategy,
        strategy.experimental_distribute_dataset(
            tf.data.Dataset.range(6).batch(4), options
        ),
    )


@program("J02", "J03")
def numpy_datasets(tf, tmp):
    def measure(strategy):
        make = strategy.extended.experimental_make_numpy_dataset
        one = make(np.arange(6, dtype=np.float32))
        nest = make((np.arange(4, dtype=np.float32), {"a": np.ones((4, 2), np.int32)}))
        return [
            steps(strategy, strategy.experimental_distribute_dataset(one.batch(4))),
            steps(strategy, strategy.experimental_distribute_dataset(nest.batch(4))),
            spec(nest.element_spec),
            [plain(x) for x in nest],
        ]

    return _per_count(tf, measure)
