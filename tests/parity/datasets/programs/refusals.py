"""Wrong arguments and wrong data: the type of the error, wherever it is raised."""

import numpy as np

from tests.parity.datasets.kit import error, generated, plain, program


def _numbers(tf, n=6):
    return tf.data.Dataset.range(n)


@program()
def batch_of_zero_or_less(tf, tmp):
    return [error(lambda n=n: _numbers(tf).batch(n)) for n in (0, -1)]


@program()
def batch_of_arrays_that_differ(tf, tmp):
    return error(lambda: generated(tf, ([1], [2, 3])).batch(2))


@program()
def batch_size_that_is_no_number(tf, tmp):
    return [error(lambda n=n: _numbers(tf).batch(n)) for n in (2.5, "2", None)]


@program()
def padded_batch_too_short(tf, tmp):
    dataset = generated(tf, ([1], [2, 3]))
    return error(lambda: dataset.padded_batch(2, padded_shapes=[1]))


@program()
def padded_batch_of_another_rank(tf, tmp):
    dataset = generated(tf, ([1], [2, 3]))
    return error(lambda: dataset.padded_batch(2, padded_shapes=[None, 2]))


@program()
def padded_batch_with_a_value_of_another_type(tf, tmp):
    dataset = generated(tf, ([1], [2, 3]))
    return error(
        lambda: dataset.padded_batch(2, [None], padding_values=np.float32(0.5))
    )


@program()
def padded_batch_with_another_structure(tf, tmp):
    dataset = generated(tf, ([1], [2, 3]))
    return error(lambda: dataset.padded_batch(2, padded_shapes=([None], [None])))


@program()
def padded_batch_without_shapes_of_unknown_rank(tf, tmp):
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([[1], [2, 3]]), output_types=np.int64
    )
    return error(lambda: dataset.padded_batch(2))


@program()
def shuffle_without_a_buffer(tf, tmp):
    return [error(lambda n=n: _numbers(tf).shuffle(n)) for n in (0, -1, -2)]


@program()
def shards_that_do_not_exist(tf, tmp):
    return [
        error(lambda a=a: _numbers(tf).shard(*a))
        for a in ((2, 2), (2, -1), (0, 0), (-1, 0), (3, 7))
    ]


@program()
def repeat_that_is_no_number(tf, tmp):
    return [error(lambda n=n: _numbers(tf).repeat(n)) for n in ("2", 1.5)]


@program()
def prefetch_of_a_negative_number(tf, tmp):
    return error(lambda: _numbers(tf).prefetch(-5))


@program()
def slices_of_unequal_lengths(tf, tmp):
    return [
        error(lambda v=v: tf.data.Dataset.from_tensor_slices(v))
        for v in (([1, 2], [1, 2, 3]), {"a": [1], "b": [1, 2]})
    ]


@program()
def slices_of_a_scalar(tf, tmp):
    return [
        error(lambda v=v: tf.data.Dataset.from_tensor_slices(v))
        for v in (3, "text", ([1, 2], 3))
    ]


@program()
def slices_of_a_ragged_list(tf, tmp):
    return error(lambda: tf.data.Dataset.from_tensor_slices([[1], [2, 3]]))


@program()
def slices_of_objects(tf, tmp):
    return error(lambda: tf.data.Dataset.from_tensor_slices([object(), object()]))


@program()
def ranges_that_are_none(tf, tmp):
    dataset = tf.data.Dataset
    return [
        error(lambda: dataset.range()),
        error(lambda: dataset.range(1, 2, 3, 4)),
        error(lambda: dataset.range(1, 5, 0)),
        error(lambda: dataset.range("3")),
    ]


@program()
def a_generator_that_is_no_function(tf, tmp):
    return error(
        lambda: tf.data.Dataset.from_generator(
            [1, 2], output_signature=tf.TensorSpec((), "int64")
        )
    )


@program()
def a_generator_without_a_signature(tf, tmp):
    return error(lambda: tf.data.Dataset.from_generator(lambda: iter([1])))


@program()
def a_generator_told_twice(tf, tmp):
    return error(
        lambda: tf.data.Dataset.from_generator(
            lambda: iter([1]),
            output_types=np.int64,
            output_signature=tf.TensorSpec((), "int64"),
        )
    )


@program()
def a_generator_against_its_signature(tf, tmp):
    def of(values, shape, dtype="int64"):
        return tf.data.Dataset.from_generator(
            lambda: iter(values), output_signature=tf.TensorSpec(shape, dtype)
        )

    pair = (tf.TensorSpec((), "int64"), tf.TensorSpec((), "int64"))
    return {
        "shape": error(lambda: of([[1, 2, 3]], (2,))),
        "rank": error(lambda: of([[1, 2]], ())),
        "type": error(lambda: of(["text"], ())),
        "structure": error(
            lambda: tf.data.Dataset.from_generator(
                lambda: iter([(1, 2, 3)]), output_signature=pair
            )
        ),
    }


@program()
def elements_before_a_failure(tf, tmp):
    it = iter(generated(tf, ([1, 2], [3, 4, 5]), (2,)))
    return [plain(next(it)), error(lambda: next(it))]


@program()
def map_of_something_that_is_no_function(tf, tmp):
    return error(lambda: _numbers(tf).map(3))


@program()
def map_with_too_few_arguments(tf, tmp):
    pairs = tf.data.Dataset.zip((_numbers(tf), _numbers(tf)))
    return [
        error(lambda: pairs.map(lambda x: x)),
        error(lambda: _numbers(tf).map(lambda x, y: x)),
    ]


@program()
def map_that_raises(tf, tmp):
    def fail(x):
        raise KeyError("wrong")

    return error(lambda: _numbers(tf).map(fail))


@program()
def map_that_returns_an_object(tf, tmp):
    return error(lambda: _numbers(tf).map(lambda x: object()))


@program()
def filter_that_returns_no_bool(tf, tmp):
    batches = _numbers(tf).batch(2)
    return {
        "number": error(lambda: _numbers(tf).filter(lambda x: x)),
        "several": error(lambda: batches.filter(lambda x: x > 1)),
        "tuple": error(lambda: _numbers(tf).filter(lambda x: (x > 1, x > 2))),
        "none": error(lambda: _numbers(tf).filter(lambda x: None)),
    }


@program()
def flat_map_that_returns_no_dataset(tf, tmp):
    return [
        error(lambda: _numbers(tf).flat_map(lambda x: x)),
        error(lambda: _numbers(tf).interleave(lambda x: x)),
        error(lambda: _numbers(tf).flat_map(lambda x: (_numbers(tf), _numbers(tf)))),
    ]


@program()
def interleave_without_a_cycle(tf, tmp):
    def block(x):
        return tf.data.Dataset.range(2)

    return [
        error(lambda: _numbers(tf).interleave(block, cycle_length=0)),
        error(lambda: _numbers(tf).interleave(block, cycle_length=-3)),
        error(lambda: _numbers(tf).interleave(block, 1, block_length=0)),
    ]


@program()
def zip_of_other_things(tf, tmp):
    dataset = tf.data.Dataset
    return {
        "numbers": error(lambda: dataset.zip((1, 2))),
        "list": error(lambda: dataset.zip([_numbers(tf), _numbers(tf)])),
        "nothing": error(lambda: dataset.zip()),
        "one number": error(lambda: dataset.zip((_numbers(tf), 1))),
    }


@program()
def concatenate_of_other_elements(tf, tmp):
    dataset = tf.data.Dataset
    return {
        "type": error(lambda: _numbers(tf).concatenate(dataset.from_tensors(1.5))),
        "structure": error(
            lambda: _numbers(tf).concatenate(dataset.zip((_numbers(tf),)))
        ),
        "keys": error(
            lambda: dataset.from_tensors({"a": 1}).concatenate(
                dataset.from_tensors({"b": 1})
            )
        ),
        "rank": error(lambda: _numbers(tf).concatenate(_numbers(tf).batch(2))),
        "no dataset": error(lambda: _numbers(tf).concatenate([1, 2])),
    }


@program()
def unbatch_of_scalars(tf, tmp):
    return error(lambda: _numbers(tf).unbatch())


@program()
def unbatch_of_unequal_lengths(tf, tmp):
    static = tf.data.Dataset.from_tensors(([1, 2], [1, 2, 3]))
    dynamic = tf.data.Dataset.zip((generated(tf, ([1, 2],)), generated(tf, ([1],))))
    return [error(lambda: static.unbatch()), error(lambda: dynamic.unbatch())]


@program()
def rebatch_of_scalars(tf, tmp):
    return error(lambda: _numbers(tf).rebatch(2))


@program()
def windows_of_no_size(tf, tmp):
    return [
        error(lambda: _numbers(tf).window(0)),
        error(lambda: _numbers(tf).window(2, shift=0)),
        error(lambda: _numbers(tf).window(2, stride=0)),
    ]


@program()
def reduce_to_another_state(tf, tmp):
    return [
        error(lambda: _numbers(tf).reduce(np.int64(0), lambda s, x: (s, x))),
        error(lambda: _numbers(tf).reduce(np.int64(0), lambda s, x: s * 0.5)),
    ]


@program()
def apply_that_returns_no_dataset(tf, tmp):
    return error(lambda: _numbers(tf).apply(lambda d: 3))


@program()
def options_that_are_none(tf, tmp):
    dataset = _numbers(tf)
    return error(lambda: dataset.with_options({"deterministic": True}))


@program()
def an_option_that_does_not_exist(tf, tmp):
    options = tf.data.Options()

    def misspell():
        options.determinism = True

    return error(misspell)


@program()
def a_dataset_cannot_be_indexed(tf, tmp):
    return error(lambda: _numbers(tf)[0])


@program()
def a_dataset_is_no_iterator(tf, tmp):
    return error(lambda: next(_numbers(tf)))
