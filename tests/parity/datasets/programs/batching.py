"""batch, padded_batch, unbatch, rebatch, window."""

import numpy as np

from tests.parity.datasets.kit import both, cardinality, elements, generated, program

LENGTHS = ([1], [2, 3], [], [4, 5, 6], [7])


def _with_cardinality(dataset):
    return {**both(dataset), "cardinality": cardinality(dataset)}


@program("H04")
def batches(tf, tmp):
    return _with_cardinality(tf.data.Dataset.range(7).batch(3))


@program()
def whole_batches_only(tf, tmp):
    return _with_cardinality(tf.data.Dataset.range(7).batch(3, drop_remainder=True))


@program()
def a_batch_larger_than_the_dataset(tf, tmp):
    dataset = tf.data.Dataset.range(3)
    return [both(dataset.batch(9)), both(dataset.batch(9, drop_remainder=True))]


@program()
def batches_of_structures(tf, tmp):
    value = {"a": [1, 2, 3], "b": (["x", "y", "z"], np.ones((3, 2), np.float32))}
    return _with_cardinality(tf.data.Dataset.from_tensor_slices(value).batch(2))


@program()
def batches_in_parallel(tf, tmp):
    dataset = tf.data.Dataset.range(7)
    return [
        _with_cardinality(dataset.batch(3, num_parallel_calls=2)),
        elements(dataset.batch(3, num_parallel_calls=tf.data.AUTOTUNE)),
        elements(dataset.batch(3, True, num_parallel_calls=2, deterministic=True)),
    ]


@program()
def batches_of_batches(tf, tmp):
    dataset = tf.data.Dataset.range(8).batch(2)
    return [
        _with_cardinality(dataset.batch(3)),
        _with_cardinality(tf.data.Dataset.range(8).batch(2, True).batch(2, True)),
    ]


@program()
def batches_of_the_empty_dataset(tf, tmp):
    return _with_cardinality(tf.data.Dataset.range(0).batch(2))


@program()
def batches_of_an_infinite_dataset(tf, tmp):
    dataset = tf.data.Dataset.range(3).repeat().batch(4)
    return [cardinality(dataset), elements(dataset, 3)]


@program()
def arrays_of_one_length_batch_though_the_spec_does_not_tell(tf, tmp):
    return both(generated(tf, ([1, 2], [3, 4])).batch(2))


@program()
def padded_batches_without_shapes(tf, tmp):
    return _with_cardinality(generated(tf, LENGTHS).padded_batch(2))


@program()
def padded_batches_to_the_longest(tf, tmp):
    return both(generated(tf, LENGTHS).padded_batch(3, padded_shapes=[None]))


@program()
def padded_batches_to_a_length(tf, tmp):
    return both(generated(tf, LENGTHS).padded_batch(2, padded_shapes=[4]))


@program()
def padded_batches_with_a_value(tf, tmp):
    dataset = generated(tf, LENGTHS)
    return both(
        dataset.padded_batch(2, padded_shapes=[None], padding_values=np.int64(-1))
    )


@program()
def padded_batches_that_drop_the_remainder(tf, tmp):
    return _with_cardinality(
        generated(tf, LENGTHS).padded_batch(2, padded_shapes=[4], drop_remainder=True)
    )


@program()
def padded_batches_of_scalars(tf, tmp):
    return both(tf.data.Dataset.range(3).padded_batch(2, padded_shapes=()))


@program()
def padded_batches_of_matrices(tf, tmp):
    values = (np.ones((1, 2)), np.ones((2, 1)), np.ones((0, 3)))
    dataset = generated(tf, values, (None, None), "float32")
    return [both(dataset.padded_batch(3)), both(dataset.padded_batch(2, [2, None]))]


@program()
def padded_batches_of_structures(tf, tmp):
    dataset = tf.data.Dataset.from_generator(
        lambda: ({"a": list(range(i)), "b": (i, [0.5] * (2 - i))} for i in range(3)),
        output_signature={
            "a": tf.TensorSpec((None,), "int32"),
            "b": (tf.TensorSpec((), "int64"), tf.TensorSpec((None,), "float32")),
        },
    )
    return {
        "shapes found": both(dataset.padded_batch(2)),
        "shapes given": both(
            dataset.padded_batch(3, padded_shapes={"a": [3], "b": ([], [None])})
        ),
        "one value": both(
            dataset.map(lambda d: d["a"]).padded_batch(3, padding_values=9)
        ),
        "values": both(
            dataset.padded_batch(
                3,
                padding_values={
                    "a": np.int32(-1),
                    "b": (np.int64(0), np.float32(0.25)),
                },
            )
        ),
    }


@program()
def padded_batches_of_strings_and_bools(tf, tmp):
    dataset = tf.data.Dataset.from_generator(
        lambda: ((["x"] * i, [True] * i) for i in (1, 2)),
        output_signature=(
            tf.TensorSpec((None,), "string"),
            tf.TensorSpec((None,), "bool"),
        ),
    )
    return both(dataset.padded_batch(2))


@program()
def unbatched(tf, tmp):
    return _with_cardinality(tf.data.Dataset.range(5).batch(2).unbatch())


@program()
def unbatched_structures(tf, tmp):
    value = {
        "a": np.arange(6).reshape(2, 3),
        "b": ([["x", "y", "z"], ["u", "v", "w"]],),
    }
    return _with_cardinality(tf.data.Dataset.from_tensor_slices(value).unbatch())


@program()
def unbatched_arrays_of_several_lengths(tf, tmp):
    return both(generated(tf, LENGTHS).unbatch())


@program()
def unbatched_and_batched_again(tf, tmp):
    dataset = tf.data.Dataset.range(7).batch(3).unbatch().batch(2)
    return _with_cardinality(dataset)


@program()
def rebatched(tf, tmp):
    dataset = tf.data.Dataset.range(8).batch(4)
    return {
        "smaller": _with_cardinality(dataset.rebatch(3)),
        "larger": _with_cardinality(dataset.rebatch(5)),
        "whole only": _with_cardinality(dataset.rebatch(3, drop_remainder=True)),
        "equal": _with_cardinality(dataset.rebatch(4)),
    }


@program()
def rebatched_to_several_sizes(tf, tmp):
    dataset = tf.data.Dataset.range(10).batch(4)
    return {
        "in turn": _with_cardinality(dataset.rebatch([2, 1])),
        "with an empty one": both(dataset.rebatch([3, 0, 2])),
        "whole only": both(dataset.rebatch([3, 4], drop_remainder=True)),
        "equal": both(dataset.rebatch([2, 2])),
    }


@program()
def rebatched_structures(tf, tmp):
    value = (np.arange(5), {"a": np.arange(10.0).reshape(5, 2)})
    return both(tf.data.Dataset.from_tensor_slices(value).batch(2).rebatch(3))


@program()
def windows(tf, tmp):
    dataset = tf.data.Dataset.range(7)
    return {
        "size": _with_cardinality(dataset.window(3)),
        "whole only": _with_cardinality(dataset.window(3, drop_remainder=True)),
        "overlapping": _with_cardinality(dataset.window(3, shift=1)),
        "overlapping, whole only": both(dataset.window(3, 1, drop_remainder=True)),
        "with a stride": _with_cardinality(dataset.window(3, shift=1, stride=2)),
        "with a stride, whole only": both(dataset.window(3, 1, 2, True)),
        "with gaps": _with_cardinality(dataset.window(2, shift=3)),
    }


@program()
def windows_batched(tf, tmp):
    dataset = tf.data.Dataset.range(6).window(3, shift=2, drop_remainder=True)
    return both(dataset.flat_map(lambda window: window.batch(3)))


@program()
def windows_of_structures(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices({"a": [1, 2, 3], "b": [4, 5, 6]})
    return both(dataset.window(2))
