"""zip and concatenate."""

import numpy as np

from tests.parity.datasets.kit import both, cardinality, program, structure


def _pair(tf):
    return tf.data.Dataset.range(3), tf.data.Dataset.range(10, 15)


def _made(dataset):
    return [both(dataset), cardinality(dataset), structure(next(iter(dataset)))]


@program()
def zip_of_a_tuple(tf, tmp):
    return _made(tf.data.Dataset.zip(_pair(tf)))


@program()
def zip_of_arguments(tf, tmp):
    return _made(tf.data.Dataset.zip(*_pair(tf)))


@program()
def zip_of_one(tf, tmp):
    a, _ = _pair(tf)
    return [_made(tf.data.Dataset.zip((a,))), _made(tf.data.Dataset.zip(a))]


@program()
def zip_of_a_dict(tf, tmp):
    a, b = _pair(tf)
    return _made(tf.data.Dataset.zip({"a": a, "b": b}))


@program()
def zip_of_nested_structures(tf, tmp):
    a, b = _pair(tf)
    return _made(tf.data.Dataset.zip((a, (b, {"c": a}))))


@program()
def zip_of_structured_datasets(tf, tmp):
    a, b = _pair(tf)
    pairs = tf.data.Dataset.from_tensor_slices((["x", "y", "z"], np.ones((3, 2))))
    return _made(tf.data.Dataset.zip((pairs, a.batch(2), b)))


@program()
def zip_with_an_infinite_dataset(tf, tmp):
    a, b = _pair(tf)
    return _made(tf.data.Dataset.zip((a, b.repeat())))


@program()
def zip_of_a_dataset_with_itself(tf, tmp):
    a, _ = _pair(tf)
    return _made(tf.data.Dataset.zip((a, a)))


@program()
def zip_then_map(tf, tmp):
    a, b = _pair(tf)
    return _made(tf.data.Dataset.zip((a, b)).map(lambda x, y: {"sum": x + y}))


@program()
def zip_then_batch(tf, tmp):
    a, b = _pair(tf)
    return _made(tf.data.Dataset.zip((a, b)).batch(2))


@program()
def concatenated(tf, tmp):
    a, b = _pair(tf)
    return [_made(a.concatenate(b)), _made(b.concatenate(a).concatenate(b))]


@program()
def concatenated_with_itself(tf, tmp):
    a, _ = _pair(tf)
    return _made(a.concatenate(a))


@program()
def concatenated_batches(tf, tmp):
    a, b = _pair(tf)
    return {
        "any size": _made(a.batch(2).concatenate(b.batch(4))),
        "one size": _made(a.batch(2, True).concatenate(b.batch(2, True))),
        "two sizes": _made(a.batch(2, True).concatenate(b.batch(3, True))),
        "one of them": _made(a.batch(2).concatenate(b.batch(2, True))),
    }


@program()
def concatenated_structures(tf, tmp):
    a = tf.data.Dataset.from_tensor_slices({"x": [1, 2], "y": (["a", "b"],)})
    b = tf.data.Dataset.from_tensor_slices({"x": [3], "y": (["c"],)})
    return _made(a.concatenate(b))


@program()
def concatenated_with_nothing(tf, tmp):
    a, b = _pair(tf)
    return [_made(a.concatenate(b.take(0))), _made(a.take(0).concatenate(b))]


@program()
def concatenated_after_an_infinite_dataset(tf, tmp):
    a, b = _pair(tf)
    return [
        cardinality(a.repeat().concatenate(b)),
        cardinality(a.concatenate(b.repeat())),
    ]
