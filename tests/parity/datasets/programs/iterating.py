"""Iterators: for, next, get_next, optionals, NumPy."""

import numpy as np

from tests.parity.datasets.kit import elements, error, plain, program, structure


@program()
def iterators_are_independent(tf, tmp):
    dataset = tf.data.Dataset.range(3)
    one, two = iter(dataset), iter(dataset)
    return [plain(next(one)), plain(next(one)), plain(next(two)), plain(next(one))]


@program()
def an_iterator_is_its_own_iterator(tf, tmp):
    it = iter(tf.data.Dataset.range(3))
    return [iter(it) is it, plain(next(it)), elements(it)]


@program()
def the_end_of_an_iterator(tf, tmp):
    it = iter(tf.data.Dataset.range(1))
    next(it)
    return [error(lambda: next(it)), error(lambda: next(it)), next(it, "end")]


@program()
def get_next(tf, tmp):
    it = iter(tf.data.Dataset.range(1))
    return [plain(it.get_next()), error(lambda: it.get_next())]


@program()
def optionals(tf, tmp):
    it = iter(tf.data.Dataset.range(1))
    full, empty = it.get_next_as_optional(), it.get_next_as_optional()
    return [
        bool(full.has_value()),
        plain(full.get_value()),
        bool(empty.has_value()),
        error(lambda: empty.get_value()),
    ]


@program()
def optionals_of_structures(tf, tmp):
    it = iter(tf.data.Dataset.from_tensor_slices({"a": [1], "b": (["x"],)}))
    return plain(it.get_next_as_optional().get_value())


@program()
def the_spec_of_an_iterator(tf, tmp):
    it = iter(tf.data.Dataset.range(3).batch(2))
    return [list(it.element_spec.shape), np.dtype(it.element_spec.dtype.name).name]


@program()
def numpy_iterators(tf, tmp):
    value = {
        "a": np.arange(4, dtype=np.int32).reshape(2, 2),
        "b": ([1.5, 2.5], ["x", "y"]),
    }
    dataset = tf.data.Dataset.from_tensor_slices(value)
    first = next(iter(dataset.as_numpy_iterator()))
    return {
        "structure": structure(first),
        "array": type(first["a"]).__name__,
        "scalar": type(first["b"][0]).__name__,
        "string": type(first["b"][1]).__name__,
        "elements": elements(dataset.as_numpy_iterator()),
    }


@program()
def numpy_iterators_of_batches(tf, tmp):
    strings = tf.data.Dataset.from_tensor_slices(["x", "yy", "z"]).batch(2)
    found = list(strings.as_numpy_iterator())
    return [
        [type(x).__name__ for x in found],
        [x.dtype.name for x in found],
        plain(found),
        [x.dtype.name for x in tf.data.Dataset.range(3).batch(2).as_numpy_iterator()],
    ]


@program()
def numpy_iterators_start_again(tf, tmp):
    dataset = tf.data.Dataset.range(3)
    it = dataset.as_numpy_iterator()
    return [int(next(it)), [int(x) for x in it], len(list(dataset.as_numpy_iterator()))]


@program()
def a_dataset_is_iterated_again_and_again(tf, tmp):
    dataset = tf.data.Dataset.range(4).map(lambda x: x * 2).batch(3)
    return [elements(dataset) for _ in range(3)]


@program()
def a_dataset_left_early_starts_again(tf, tmp):
    dataset = tf.data.Dataset.range(100).prefetch(4)
    return [elements(dataset, 2), elements(dataset, 3)]


@program()
def transformations_leave_their_input_alone(tf, tmp):
    dataset = tf.data.Dataset.range(4)
    changed = dataset.map(lambda x: x + 100).batch(2)
    return [elements(dataset), elements(changed), elements(dataset)]
