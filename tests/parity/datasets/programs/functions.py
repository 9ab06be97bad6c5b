"""map, filter, flat_map, interleave, reduce, apply: what a function gets and gives."""

import numpy as np

from tests.parity.datasets.kit import both, cardinality, elements, program, structure


def _numbers(tf, n=4):
    return tf.data.Dataset.range(n)


@program()
def map_over_scalars(tf, tmp):
    return both(_numbers(tf).map(lambda x: x * 2 + 1))


@program()
def a_tuple_becomes_arguments(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(([1, 2], [10, 20]))
    return both(dataset.map(lambda x, y: x + y))


@program()
def a_nested_tuple_stays_one_argument(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices((([1, 2], [3, 4]), [10, 20]))
    return both(dataset.map(lambda pair, y: (pair[1] * y, pair[0])))


@program()
def a_tuple_of_one_becomes_one_argument(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(([1, 2],))
    return both(dataset.map(lambda x: x + 1))


@program()
def a_dict_stays_one_argument(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices({"a": [1, 2], "b": [10, 20]})
    return both(dataset.map(lambda d: d["a"] + d["b"]))


@program()
def map_to_a_tuple(tf, tmp):
    dataset = _numbers(tf).map(lambda x: (x, x * x))
    return [both(dataset), structure(next(iter(dataset)))]


@program()
def map_to_a_list(tf, tmp):
    dataset = _numbers(tf).map(lambda x: [x, x + 1])
    return [both(dataset), structure(next(iter(dataset)))]


@program()
def map_to_lists_of_values_and_constants(tf, tmp):
    numbers = _numbers(tf, 2)
    return [
        both(numbers.map(lambda x: [1, 2])),
        both(numbers.map(lambda x: (x, [x, x + 1]))),
        both(numbers.map(lambda x: {"a": [x, x + 1]})),
        both(numbers.map(lambda x: [[x, x], [x, x + 1]])),
        both(numbers.map(lambda x: [x, 1])),
    ]


@program()
def map_to_a_dict(tf, tmp):
    dataset = _numbers(tf).map(lambda x: {"x": x, "even": x % 2 == 0})
    return [both(dataset), structure(next(iter(dataset)))]


@program()
def map_to_nested_structures(tf, tmp):
    dataset = _numbers(tf, 2).map(lambda x: {"a": (x, {"b": -x}), "c": x > 0})
    return [both(dataset), structure(next(iter(dataset)))]


@program()
def map_to_python_values(tf, tmp):
    dataset = _numbers(tf, 2).map(lambda x: (1, 2.5, "s", True, [1, 2], b"b"))
    return [both(dataset), structure(next(iter(dataset)))]


@program()
def map_to_numpy_values(tf, tmp):
    dataset = _numbers(tf, 2).map(lambda x: (np.arange(2.0), np.int8(3)))
    return [both(dataset), structure(next(iter(dataset)))]


@program()
def map_to_none(tf, tmp):
    dataset = _numbers(tf, 2).map(lambda x: (x, None))
    return elements(dataset)


@program()
def arithmetic_keeps_the_type(tf, tmp):
    found = {}
    for name in ("int32", "int64", "float32", "float64"):
        dataset = tf.data.Dataset.from_tensor_slices(np.array([5, 2], name))
        found[name] = [
            both(dataset.map(lambda x: x * 2)),
            both(dataset.map(lambda x: -((x - 9) ** 2))),
            both(dataset.map(lambda x: x >= 3)),
        ]
    return found


@program()
def division(tf, tmp):
    found = {}
    for name in ("int32", "int64", "float32"):
        dataset = tf.data.Dataset.from_tensor_slices(np.array([7, -7], name))
        found[name] = [
            both(dataset.map(lambda x: x / 2)),
            both(dataset.map(lambda x: x // 2)),
            both(dataset.map(lambda x: x % 4)),
        ]
    return found


@program()
def map_over_batches(tf, tmp):
    return both(_numbers(tf, 5).batch(2).map(lambda x: (x[0], x[::-1], x * 10)))


@program()
def indexing_keeps_static_shapes(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(12.0).reshape(2, 3, 2))
    return both(dataset.map(lambda x: (x[0], x[1:], x[:, 1], x[..., 0], x[None])))


@program()
def map_in_parallel_keeps_the_order(tf, tmp):
    dataset = _numbers(tf, 20)
    return {
        "two": elements(dataset.map(lambda x: x + 1, num_parallel_calls=2)),
        "autotune": elements(dataset.map(lambda x: x + 1, tf.data.AUTOTUNE)),
        "deterministic": elements(
            dataset.map(lambda x: x + 1, num_parallel_calls=3, deterministic=True)
        ),
        "in any order": sorted(
            elements(
                dataset.map(lambda x: x + 1, num_parallel_calls=3, deterministic=False)
            )
        ),
    }


@program()
def maps_in_a_row(tf, tmp):
    dataset = _numbers(tf)
    for k in range(5):
        dataset = dataset.map(lambda x, k=k: x * 2 + k)
    return both(dataset)


@program()
def a_map_refers_to_values_outside(tf, tmp):
    table = np.array([5, 6, 7, 8])
    return both(_numbers(tf).map(lambda x: (x * 10, table)).take(2))


@program()
def filtered(tf, tmp):
    dataset = _numbers(tf, 9).filter(lambda x: x % 3 == 0)
    return [both(dataset), cardinality(dataset)]


@program()
def filtered_structures(tf, tmp):
    pairs = tf.data.Dataset.from_tensor_slices(([1, 2, 3], [3, 2, 1]))
    dicts = tf.data.Dataset.from_tensor_slices({"a": [1, 2, 3]})
    return [
        both(pairs.filter(lambda x, y: x < y)),
        both(dicts.filter(lambda d: d["a"] != 2)),
    ]


@program()
def filtered_to_nothing(tf, tmp):
    return both(_numbers(tf).filter(lambda x: x > 100))


@program()
def filtered_by_a_python_bool(tf, tmp):
    return elements(_numbers(tf).filter(lambda x: True))


@program()
def flat_map_to_datasets(tf, tmp):
    dataset = _numbers(tf).flat_map(lambda x: tf.data.Dataset.range(x))
    return [both(dataset), cardinality(dataset)]


@program()
def flat_map_of_tensors(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(6).reshape(3, 2))
    return [
        both(dataset.flat_map(tf.data.Dataset.from_tensor_slices)),
        both(dataset.flat_map(lambda x: tf.data.Dataset.from_tensors(x).repeat(2))),
    ]


@program()
def flat_map_of_tuples(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(([1, 2], [3, 4]))
    return both(
        dataset.flat_map(lambda x, y: tf.data.Dataset.from_tensors((y, x)).repeat(2))
    )


def _blocks(tf, n=4, each=3):
    """Gives block(i): i, i + 10, i + 20, …"""
    return _numbers(tf, n), lambda x: tf.data.Dataset.range(each).map(
        lambda y: x + 10 * y
    )


@program()
def interleaved(tf, tmp):
    dataset, block = _blocks(tf)
    return {
        str(key): both(
            dataset.interleave(block, cycle_length=key[0], block_length=key[1])
        )
        for key in ((1, 1), (2, 1), (2, 2), (3, 1), (4, 2), (9, 1), (2, 9))
    }


@program()
def interleaved_blocks_of_several_lengths(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(np.array([1, 4, 0, 2, 3]))

    def block(n):
        return tf.data.Dataset.range(n).map(lambda y: n * 10 + y)

    return {
        str(key): elements(dataset.interleave(block, key[0], key[1]))
        for key in ((1, 1), (2, 1), (2, 2), (3, 2), (5, 1))
    }


@program()
def interleaved_in_parallel(tf, tmp):
    dataset, block = _blocks(tf)
    return [
        both(dataset.interleave(block, 2, 1, num_parallel_calls=2)),
        elements(dataset.interleave(block, 3, 2, num_parallel_calls=tf.data.AUTOTUNE)),
        sorted(
            elements(
                dataset.interleave(block, 2, num_parallel_calls=2, deterministic=False)
            )
        ),
    ]


@program()
def interleaved_without_a_cycle_length(tf, tmp):
    dataset, block = _blocks(tf)
    mixed = dataset.interleave(block)
    return [sorted(elements(mixed)), cardinality(mixed)]


@program()
def reduced(tf, tmp):
    pairs = tf.data.Dataset.from_tensor_slices(([1, 2, 3], [4.0, 5.0, 6.0]))
    return [
        plain_of(_numbers(tf).reduce(np.int64(0), lambda s, x: s + x)),
        plain_of(_numbers(tf).reduce(np.int64(0), lambda s, _: s + 1)),
        plain_of(
            pairs.reduce(
                (np.int32(0), np.float32(1)),
                lambda state, pair: (state[0] + pair[0], state[1] * pair[1]),
            )
        ),
        plain_of(
            pairs.reduce({"n": np.int32(0)}, lambda s, pair: {"n": s["n"] + pair[0]})
        ),
        plain_of(_numbers(tf, 0).reduce(np.int64(7), lambda s, x: s + x)),
    ]


def plain_of(x):
    return structure(x), elements([x])[0]


@program()
def applied(tf, tmp):
    def evens(dataset):
        return dataset.filter(lambda x: x % 2 == 0).batch(2)

    return both(_numbers(tf, 7).apply(evens))
