"""Methods of tf.data beyond the everyday surface."""

import numpy as np

from tests.parity.datasets.kit import (
    Counted,
    both,
    cardinality,
    elements,
    error,
    plain,
    program,
)


def _numbers(tf, n=6):
    return tf.data.Dataset.range(n)


@program(needs="scan")
def scanned(tf, tmp):
    return both(_numbers(tf).scan(np.int64(0), lambda s, x: (s + x, s + x)))


@program(needs="take_while")
def taken_while(tf, tmp):
    return both(_numbers(tf).take_while(lambda x: x < 3))


@program(needs="unique")
def unique_elements(tf, tmp):
    return [
        elements(tf.data.Dataset.from_tensor_slices([1, 3, 1, 2, 3]).unique()),
        elements(tf.data.Dataset.from_tensor_slices(["b", "a", "b"]).unique()),
    ]


@program(needs="snapshot")
def a_snapshot_is_read_again(tf, tmp):
    source = Counted(tf, 3)
    dataset = source.dataset.snapshot(str(tmp / "snapshot"))
    return [elements(dataset), elements(dataset), source.drawn]


@program(needs="random")
def random_numbers(tf, tmp):
    one, two, other = (
        elements(tf.data.Dataset.random(seed=seed).take(5)) for seed in (1, 1, 2)
    )
    return [one == two, one == other, len(set(one)) > 1]


@program(needs="choose_from_datasets")
def chosen_from_datasets(tf, tmp):
    datasets = [tf.data.Dataset.range(10 * i, 10 * i + 3) for i in range(3)]
    choice = tf.data.Dataset.from_tensor_slices(np.array([0, 2, 2, 1, 0, 2, 2, 0]))
    choose = tf.data.Dataset.choose_from_datasets
    return [
        elements(choose(datasets, choice)),
        elements(choose(datasets, choice, stop_on_empty_dataset=False)),
    ]


@program(needs="sample_from_datasets")
def sampled_from_datasets(tf, tmp):
    datasets = [tf.data.Dataset.range(10 * i, 10 * i + 4) for i in range(2)]
    sample = tf.data.Dataset.sample_from_datasets
    mixed = elements(sample(datasets, [0.5, 0.5], 3, stop_on_empty_dataset=False))
    return [
        elements(sample(datasets, weights=[1.0, 0.0])),
        sorted(mixed),
        [x for x in mixed if x < 10],
    ]


@program(needs="group_by_window")
def grouped_by_window(tf, tmp):
    return elements(
        _numbers(tf, 10).group_by_window(
            lambda x: x % 2, lambda key, group: group.batch(3), window_size=3
        )
    )


@program(needs="group_by_window")
def groups_of_sizes_by_key(tf, tmp):
    dataset = _numbers(tf, 10).group_by_window(
        lambda x: x % 3, lambda key, group: group, window_size_func=lambda key: 2 + key
    )
    whole = _numbers(tf, 10).group_by_window(
        lambda x: x % 2,
        lambda key, group: group.map(lambda x: (key, x)),
        window_size=100,
    )
    return [both(dataset), both(whole)]


@program(needs="group_by_window")
def groups_that_cannot_be_made(tf, tmp):
    def made(key=lambda x: x % 2, reduce=lambda key, group: group, **sizes):
        return lambda: list(_numbers(tf, 4).group_by_window(key, reduce, **sizes))

    return [
        error(made()),
        error(made(window_size=2, window_size_func=lambda key: 2)),
        error(made(window_size=0)),
        error(made(window_size_func=lambda key: key * 0)),
        error(made(lambda x: [x, x], window_size=2)),
        error(made(reduce=lambda key, group: key, window_size=2)),
    ]


def _sentences(tf):
    def numbers():
        for length in (1, 5, 2, 6, 9, 1, 3, 4):
            yield np.arange(length, dtype=np.int32)

    spec = tf.TensorSpec((None,), np.int32)
    return tf.data.Dataset.from_generator(numbers, output_signature=spec)


def _length(x):
    # An array here, a symbol there.
    return sum(1 for _ in x) if isinstance(x, np.ndarray) else _symbolic_length(x)


def _symbolic_length(x):
    import tensorflow as tf

    return tf.shape(x)[0]


@program(needs="bucket_by_sequence_length")
def padded_buckets(tf, tmp):
    dataset = _sentences(tf)
    ways: list[dict] = [
        {},
        {"drop_remainder": True},
        {"padded_shapes": [12], "padding_values": -1},
        {"bucket_batch_sizes": [1, 1, 1], "no_padding": True},
        {
            "bucket_boundaries": [3, 7, 10],
            "bucket_batch_sizes": [2, 2, 1, 1],
            "pad_to_bucket_boundary": True,
        },
    ]
    start = {"bucket_boundaries": [3, 7], "bucket_batch_sizes": [2, 2, 1]}
    return [
        both(dataset.bucket_by_sequence_length(_length, **{**start, **way}))
        for way in ways
    ]


@program(needs="bucket_by_sequence_length")
def buckets_and_sizes_that_do_not_fit(tf, tmp):
    return error(lambda: _sentences(tf).bucket_by_sequence_length(_length, [3], [1]))


@program(needs="bucket_by_sequence_length")
def bucketed_by_length(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(
        {"n": np.int32([1, 5, 2, 6, 9, 1]), "x": np.arange(6)}
    )
    return elements(
        dataset.bucket_by_sequence_length(
            lambda d: d["n"], bucket_boundaries=[3, 7], bucket_batch_sizes=[2, 2, 1]
        )
    )


@program(needs="get_single_element")
def a_single_element(tf, tmp):
    return [
        plain(_numbers(tf, 1).get_single_element()),
        error(lambda: _numbers(tf, 2).get_single_element()),
        error(lambda: _numbers(tf, 0).get_single_element()),
    ]


@program(needs="ignore_errors")
def ignored_errors(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices([[1, 2], [3, 4]])
    return elements(dataset.ignore_errors())


@program(needs="rejection_resample")
def resampled(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(np.int32([0] * 80 + [1] * 20))
    found = elements(
        dataset.rejection_resample(lambda x: x, [0.5, 0.5], [0.8, 0.2], seed=1), 200
    )
    return all(plain(pair)[0] == plain(pair)[1] for pair in found)


@program(needs=("save", "load"))
def saved_and_loaded(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices({"a": [1, 2], "b": ["x", "y"]})
    dataset.save(str(tmp / "saved"))
    return both(tf.data.Dataset.load(str(tmp / "saved")))


@program(needs="counter")
def counted(tf, tmp):
    dataset = tf.data.Dataset.counter(start=2, step=3)
    return [elements(dataset, 4), cardinality(dataset)]


@program()
def transformations_take_a_name(tf, tmp):
    return elements(_numbers(tf).batch(4, name="batched").map(lambda x: x, name="same"))
