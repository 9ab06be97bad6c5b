"""Datasets made of tensors, generators and ranges."""

import collections

import numpy as np

from tests.parity.datasets.kit import both, elements, plain, program, spec, structure

Point = collections.namedtuple("Point", "x y")


def _made(dataset):
    return {**both(dataset), "first": structure(next(iter(dataset)))}


@program("J03")
def slices_of_a_list_of_ints(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices([1, 2, 3]))


@program()
def slices_of_a_list_of_floats(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices([1.5, 2.5]))


@program()
def slices_of_a_list_of_ints_and_floats(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices([1, 2.5]))


@program()
def slices_of_a_list_of_bools(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices([True, False]))


@program()
def slices_of_a_list_of_strings(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices(["a", "bcd", ""]))


@program()
def strings_come_back_as_bytes(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(["a", "é"])
    found = list(dataset.as_numpy_iterator())
    return [type(found[0]).__name__, [x.hex() for x in found]]


@program()
def slices_of_bytes(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices([b"x", b"\x00y"]))


@program()
def slices_of_a_numpy_array_of_strings(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices(np.array(["ab", "c"])))


@program()
def slices_keep_the_types_of_arrays(tf, tmp):
    found = {}
    for name in (
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "float32", "float64", "bool", "complex64"),
    ):
        dataset = tf.data.Dataset.from_tensor_slices(np.ones(2, name))
        found[name] = [spec(dataset.element_spec), structure(next(iter(dataset)))]
    return found


@program()
def slices_of_a_list_of_numpy_scalars(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices([np.float64(1), np.float64(2)]))


@program()
def slices_of_a_nested_list(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices([[1, 2], [3, 4], [5, 6]]))


@program("J03")
def slices_of_a_matrix(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices(np.arange(6.0).reshape(3, 2)))


@program("J03")
def slices_of_a_tuple(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices(([1, 2], np.ones((2, 3)))))


@program()
def slices_of_a_tuple_of_one(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices(([1, 2],)))


@program("J03")
def slices_of_a_dict(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices({"b": [1, 2], "a": ["x", "y"]}))


@program()
def slices_of_nested_structures(tf, tmp):
    value = {"a": ([1, 2], {"c": np.float32([3, 4])}), "b": [[5], [6]]}
    return _made(tf.data.Dataset.from_tensor_slices(value))


@program()
def slices_of_a_named_tuple(tf, tmp):
    dataset = tf.data.Dataset.from_tensor_slices(Point([1, 2], [3.0, 4.0]))
    first = next(iter(dataset))
    return [type(first).__name__, plain(first.y), elements(dataset)]


@program()
def slices_of_a_list_of_arrays_are_stacked(tf, tmp):
    value = [np.arange(2), np.arange(2, 4), np.arange(4, 6)]
    return _made(tf.data.Dataset.from_tensor_slices(value))


@program()
def slices_of_nothing(tf, tmp):
    return both(tf.data.Dataset.from_tensor_slices(np.zeros((0, 2), np.float32)))


@program()
def slices_of_an_empty_list(tf, tmp):
    return both(tf.data.Dataset.from_tensor_slices([]))


@program()
def large_python_ints_become_int64(tf, tmp):
    return _made(tf.data.Dataset.from_tensor_slices([1, 2**40]))


@program()
def tensors_of_a_scalar(tf, tmp):
    return _made(tf.data.Dataset.from_tensors(7))


@program()
def tensors_of_a_list(tf, tmp):
    return _made(tf.data.Dataset.from_tensors([1.0, 2.0, 3.0]))


@program()
def tensors_of_a_string(tf, tmp):
    return _made(tf.data.Dataset.from_tensors("text"))


@program()
def tensors_of_a_tuple(tf, tmp):
    return _made(tf.data.Dataset.from_tensors((1, np.arange(3), True)))


@program()
def tensors_of_nested_structures(tf, tmp):
    return _made(tf.data.Dataset.from_tensors({"a": (1, 2.0), "b": {"c": "x"}}))


@program()
def tensors_repeated(tf, tmp):
    return _made(tf.data.Dataset.from_tensors([1, 2]).repeat(3))


@program()
def ranges(tf, tmp):
    dataset = tf.data.Dataset
    return {
        "stop": _made(dataset.range(3)),
        "start, stop": _made(dataset.range(2, 5)),
        "step": _made(dataset.range(1, 8, 3)),
        "negative step": _made(dataset.range(5, 0, -2)),
        "negative start": _made(dataset.range(-2, 2)),
    }


@program()
def empty_ranges(tf, tmp):
    dataset = tf.data.Dataset
    return [both(d) for d in (dataset.range(0), dataset.range(5, 2))]


@program()
def the_type_of_a_range(tf, tmp):
    dataset = tf.data.Dataset
    return [
        _made(dataset.range(3, output_type=np.int32)),
        _made(dataset.range(3, output_type=np.float32)),
        _made(dataset.range(1, 3, output_type=np.int64)),
    ]


@program()
def a_generator_of_scalars(tf, tmp):
    return _made(
        tf.data.Dataset.from_generator(
            lambda: iter([3, 1, 2]), output_signature=tf.TensorSpec((), "int32")
        )
    )


@program()
def a_generator_of_arrays_of_any_length(tf, tmp):
    return _made(
        tf.data.Dataset.from_generator(
            lambda: (list(range(n)) for n in (2, 0, 3)),
            output_signature=tf.TensorSpec((None,), "float32"),
        )
    )


@program()
def a_generator_of_tuples(tf, tmp):
    return _made(
        tf.data.Dataset.from_generator(
            lambda: zip([1, 2], [[0.5, 1.5], [2.5, 3.5]]),
            output_signature=(
                tf.TensorSpec((), "int64"),
                tf.TensorSpec((2,), "float32"),
            ),
        )
    )


@program()
def a_generator_of_dicts(tf, tmp):
    return _made(
        tf.data.Dataset.from_generator(
            lambda: ({"n": i, "s": "abc"[:i]} for i in range(3)),
            output_signature={
                "n": tf.TensorSpec((), "int32"),
                "s": tf.TensorSpec((), "string"),
            },
        )
    )


@program()
def a_generator_with_types_only(tf, tmp):
    return _made(
        tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_types=np.int64)
    )


@program()
def a_generator_with_types_and_shapes(tf, tmp):
    return _made(
        tf.data.Dataset.from_generator(
            lambda: iter([([1, 2], 3.0), ([4, 5], 6.0)]),
            output_types=(np.int64, np.float32),
            output_shapes=((2,), ()),
        )
    )


@program()
def a_generator_with_arguments(tf, tmp):
    return _made(
        tf.data.Dataset.from_generator(
            lambda n, m: iter(range(n, m)),
            args=(2, 5),
            output_signature=tf.TensorSpec((), "int64"),
        )
    )


@program()
def a_generator_starts_again_for_each_iteration(tf, tmp):
    started = []

    def generate():
        started.append(len(started))
        yield len(started)

    dataset = tf.data.Dataset.from_generator(
        generate, output_signature=tf.TensorSpec((), "int32")
    )
    return [elements(dataset), elements(dataset), elements(dataset.repeat(2)), started]


@program()
def an_empty_generator(tf, tmp):
    return both(
        tf.data.Dataset.from_generator(
            lambda: iter(()), output_signature=tf.TensorSpec((3,), "float32")
        )
    )
