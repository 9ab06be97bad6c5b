"""element_spec, cardinality, len and truth after each transformation."""

import numpy as np

from tests.parity.datasets.kit import cardinality, error, generated, program, spec


def _transformations(tf):
    """Every transformation by name, as a function of a dataset of scalars."""
    dataset = tf.data.Dataset
    return {
        "apply": lambda d: d.apply(lambda e: e.batch(2)),
        "batch": lambda d: d.batch(3),
        "batch, whole only": lambda d: d.batch(3, drop_remainder=True),
        "batch in parallel": lambda d: d.batch(3, num_parallel_calls=2),
        "cache": lambda d: d.cache(),
        "concatenate": lambda d: d.concatenate(d.take(2)),
        "enumerate": lambda d: d.enumerate(),
        "filter": lambda d: d.filter(lambda x: x > 1),
        "flat_map": lambda d: d.flat_map(lambda x: dataset.from_tensors([x, x])),
        "interleave": lambda d: d.interleave(lambda x: dataset.range(2)),
        "map": lambda d: d.map(lambda x: (x / 2, x > 1)),
        "map in parallel": lambda d: d.map(lambda x: x + 1, num_parallel_calls=2),
        "padded_batch": lambda d: d.padded_batch(3, padded_shapes=()),
        "padded_batch, whole only": lambda d: d.padded_batch(3, (), None, True),
        "prefetch": lambda d: d.prefetch(2),
        "rebatch": lambda d: d.batch(2).rebatch(3),
        "rebatch, whole only": lambda d: d.batch(2).rebatch(3, drop_remainder=True),
        "repeat": lambda d: d.repeat(3),
        "repeat for ever": lambda d: d.repeat(),
        "repeat never": lambda d: d.repeat(0),
        "shard": lambda d: d.shard(3, 1),
        "shuffle": lambda d: d.shuffle(4),
        "skip": lambda d: d.skip(2),
        "skip all": lambda d: d.skip(-1),
        "skip too many": lambda d: d.skip(99),
        "take": lambda d: d.take(4),
        "take all": lambda d: d.take(-1),
        "take too many": lambda d: d.take(99),
        "unbatch": lambda d: d.batch(2).unbatch(),
        "window": lambda d: d.window(3),
        "window, whole only": lambda d: d.window(3, drop_remainder=True),
        "window, overlapping": lambda d: d.window(3, shift=1),
        "with_options": lambda d: d.with_options(tf.data.Options()),
        "zip": lambda d: dataset.zip((d, dataset.range(3))),
        "zip with an infinite dataset": lambda d: dataset.zip(
            (d, dataset.range(3).repeat())
        ),
    }


@program()
def specs_after_each_transformation(tf, tmp):
    source = tf.data.Dataset.range(7)
    return {
        name: spec(change(source).element_spec)
        for name, change in _transformations(tf).items()
    }


@program()
def cardinalities_after_each_transformation(tf, tmp):
    numbers = tf.data.Dataset.range(7)
    sources = {
        "finite": numbers,
        "infinite": numbers.repeat(),
        "unknown": numbers.filter(lambda x: x >= 0),
        "empty": numbers.take(0),
    }
    return {
        kind: {
            name: cardinality(change(source))
            for name, change in _transformations(tf).items()
        }
        for kind, source in sources.items()
    }


@program()
def cardinalities_of_sources(tf, tmp):
    dataset = tf.data.Dataset
    return {
        "tensors": cardinality(dataset.from_tensors([1, 2, 3])),
        "slices": cardinality(dataset.from_tensor_slices([1, 2, 3])),
        "range": cardinality(dataset.range(5, 0, -2)),
        "generator": cardinality(generated(tf, ([1],))),
    }


@program()
def cardinality_constants(tf, tmp):
    return [int(tf.data.INFINITE_CARDINALITY), int(tf.data.UNKNOWN_CARDINALITY)]


@program()
def autotune_is_a_number(tf, tmp):
    return [int(tf.data.AUTOTUNE), int(tf.data.experimental.AUTOTUNE)]


@program()
def lengths(tf, tmp):
    numbers = tf.data.Dataset.range(7)
    return {
        "finite": len(numbers),
        "batches": len(numbers.batch(3)),
        "empty": len(numbers.take(0)),
        "infinite": error(lambda: len(numbers.repeat())),
        "unknown": error(lambda: len(numbers.filter(lambda x: x > 1))),
    }


@program()
def a_dataset_is_true(tf, tmp):
    numbers = tf.data.Dataset.range(3)
    return [bool(numbers), bool(numbers.take(0)), bool(numbers.filter(lambda x: x > 9))]


@program()
def specs_of_structures(tf, tmp):
    value = {"a": np.ones((4, 2), np.float32), "b": (np.arange(4), ["x"] * 4)}
    dataset = tf.data.Dataset.from_tensor_slices(value)
    return {
        "slices": spec(dataset.element_spec),
        "batch": spec(dataset.batch(3).element_spec),
        "batch, whole only": spec(dataset.batch(3, True).element_spec),
        "two batches": spec(dataset.batch(2, True).batch(2).element_spec),
        "unbatch": spec(dataset.batch(2).unbatch().element_spec),
        "window": spec(dataset.window(2).element_spec),
        "map": spec(dataset.map(lambda d: d["b"]).element_spec),
        "repeat": spec(dataset.repeat().element_spec),
    }


@program()
def specs_of_maps_over_batches(tf, tmp):
    any_size = tf.data.Dataset.range(8).batch(4)
    one_size = tf.data.Dataset.range(8).batch(4, drop_remainder=True)
    return [
        spec(dataset.map(change).element_spec)
        for dataset in (any_size, one_size)
        for change in (
            lambda x: x * 2,
            lambda x: x / 2,
            lambda x: x[1:],
            lambda x: x[0],
            lambda x: (x > 1, {"x": x}),
        )
    ]


@program()
def specs_of_batches_of_any_length(tf, tmp):
    dataset = generated(tf, ([1], [2, 3]))
    return {
        "batch": spec(dataset.batch(2).element_spec),
        "padded": spec(dataset.padded_batch(2).element_spec),
        "padded to a length": spec(dataset.padded_batch(2, [5]).element_spec),
        "unbatch": spec(dataset.unbatch().element_spec),
        "rebatch": spec(dataset.rebatch(2).element_spec),
    }


@program()
def specs_without_a_shape(tf, tmp):
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([[1, 2], [3, 4]]), output_types=np.int64
    )
    return {
        "generator": spec(dataset.element_spec),
        "batch": spec(dataset.batch(2).element_spec),
        "unbatch": spec(dataset.unbatch().element_spec),
        "map": spec(dataset.map(lambda x: x + 1).element_spec),
    }


@program()
def specs_of_concatenations(tf, tmp):
    def of(*shape):
        return generated(tf, (), shape)

    return {
        "alike": spec(of(2).concatenate(of(2)).element_spec),
        "two sizes": spec(of(2).concatenate(of(3)).element_spec),
        "one unknown": spec(of(2).concatenate(of(None)).element_spec),
        "two ranks": spec(of(2).concatenate(of(2, 2)).element_spec),
    }


@program("H13", "H14")
def options_of_a_dataset(tf, tmp):
    dataset = tf.data.Dataset.range(3)
    options = tf.data.Options()
    options.deterministic = False
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    changed = dataset.with_options(options).map(lambda x: x)
    return [
        dataset.options().deterministic,
        dataset.options().experimental_distribute.auto_shard_policy.name,
        changed.options().deterministic,
        changed.options().experimental_distribute.auto_shard_policy.name,
    ]


@program("H13")
def later_options_win(tf, tmp):
    def with_policy(dataset, name):
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = getattr(
            tf.data.experimental.AutoShardPolicy, name
        )
        return dataset.with_options(options)

    dataset = with_policy(tf.data.Dataset.range(3), "OFF")
    kept = dataset.with_options(tf.data.Options())
    changed = with_policy(dataset, "FILE")
    return [
        d.options().experimental_distribute.auto_shard_policy.name
        for d in (dataset, kept, changed)
    ]


@program("H13")
def options_of_a_zip(tf, tmp):
    options = tf.data.Options()
    options.deterministic = False
    one = tf.data.Dataset.range(3).with_options(options)
    two = tf.data.Dataset.range(3)
    return [
        tf.data.Dataset.zip((one, two)).options().deterministic,
        tf.data.Dataset.zip((two, one)).options().deterministic,
        two.concatenate(one).options().deterministic,
    ]


@program("H13", "H14", "H15", "H16")
def the_policies(tf, tmp):
    return {p.name: int(p.value) for p in tf.data.experimental.AutoShardPolicy}
