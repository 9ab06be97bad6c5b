import inspect

import numpy as np
import pytest

import unisono as tf
from tests.unit.input.pipelines import Dataset
from unisono._src.foundation import host_numbers
from unisono._src.ops.host import (
    frequent_arguments as frequent,
    shared_bodies,
    working_arrays,
)

SHORT = {
    "cast": frequent.cast_to_float,
    "reshape": frequent.reshape,
    "stack": frequent.stack_numbers,
    "one_hot": frequent.one_hot_number,
    "pad": frequent.pad_with_zeros,
}


def host(x, dtype=None):
    """An array as functions of datasets get it."""
    return host_numbers.to_host_array(np.array(x, dtype))


def number(x):
    return host_numbers.to_host_number(x)


IMAGE = np.arange(6, dtype=np.uint8).reshape(2, 3)
TAKEN = [
    ("cast", host(IMAGE), tf.float32),
    ("cast", host([2**53 + 1, -1], np.int64), tf.float64),
    ("cast", host([2**64 - 1], np.uint64), tf.float32),
    ("cast", host([True, False]), tf.float32),
    ("cast", host([], np.int32), tf.float32),
    ("reshape", host(IMAGE), [3, 2]),
    ("reshape", host(IMAGE), [-1]),
    ("reshape", host(np.zeros((0, 3))), [3, 0]),
    ("reshape", host([b"a", b"b"], object), [2, 1]),
    ("stack", [number(np.float32(1.5)), number(np.float32(-0.0))]),
    ("stack", [np.int64(2**40), np.int64(-1)], 0),
    ("stack", [number(np.uint8(255))]),
    ("one_hot", host(2, np.int32), 4),
    ("one_hot", host(4, np.int64), 4),
    ("one_hot", host(-1, np.int64), 4),
    ("one_hot", host(0, np.uint8), 0),
    ("pad", host(IMAGE), [[1, 0], [2, 3]]),
    ("pad", host([1.5]), [[0, 0]]),
    ("pad", host(np.zeros((0, 2), np.int64)), [[0, 1], [1, 1]]),
]
LEFT = [
    ("cast", host([300.7, -1.0]), tf.float32),
    ("cast", host(IMAGE), tf.int32),
    ("cast", host(IMAGE), "float32"),
    ("cast", IMAGE, tf.float32),
    ("cast", 3, tf.float32),
    ("reshape", host(IMAGE), (3, 2)),
    ("reshape", host(IMAGE), [np.int32(3), 2]),
    ("reshape", host([5]), []),
    ("stack", [number(np.float32(1)), number(np.int32(1))]),
    ("stack", [1, 2]),
    ("stack", [True, False]),
    ("stack", [host(IMAGE), host(IMAGE)]),
    ("stack", [number(np.float32(1))], -1),
    ("stack", []),
    ("one_hot", host([1, 2]), 3),
    ("one_hot", host(1.0), 3),
    ("one_hot", host(1), 3, 5.0),
    ("one_hot", host(1), -3),
    ("pad", host([1]), [[1, -1]]),
    ("pad", host([1]), [[1, 1]], "REFLECT"),
    ("pad", host([1]), [[1]]),
    ("pad", host([b"a"], object), [[1, 0]]),
    ("pad", host(1), []),
]


def whole(name):
    """The body of a name that knows all arguments."""
    return shared_bodies.run_on_host(inspect.unwrap(getattr(tf, name)))


@pytest.mark.parametrize(("name", "args"), [(name, args) for name, *args in TAKEN])
def test_a_short_body_gives_what_the_whole_one_gives(name, args):
    found, expected = SHORT[name](*args), whole(name)(*args)
    assert type(found) is type(expected) is host_numbers.HostArray
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes() or found.tolist() == expected.tolist()


@pytest.mark.parametrize(("name", "args"), [(name, args) for name, *args in LEFT])
def test_a_short_body_leaves_other_arguments_to_the_whole_one(name, args):
    assert SHORT[name](*args) is None


def test_named_arguments_and_sizes_that_do_not_fit_are_left():
    image = host(IMAGE)
    assert frequent.reshape(image, [4, 2]) is None
    assert frequent.reshape(image, [-2, 3]) is None
    assert frequent.one_hot_number(host(1), 3, dtype=tf.int32) is None
    assert frequent.pad_with_zeros(image, [[1, 1], [1, 1]], constant_values=7) is None
    assert frequent.pad_with_zeros(image, [[1, 1]]) is None


def test_functions_of_datasets_use_the_short_bodies(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("the whole body ran")

    monkeypatch.setattr(working_arrays, "present", fail)

    def prepare(x, y):
        x = tf.pad(tf.cast(x, tf.float32), [[2, 2], [0, 0]]) / 2.0
        label = tf.one_hot(y, 3)
        return tf.reshape(x, [-1]), label, tf.stack([label[0], label[2]])

    images = np.stack([IMAGE, IMAGE])
    dataset = Dataset.from_tensor_slices((images, np.array([0, 2]))).map(prepare)
    image, label, ends = list(dataset)[1]
    assert image[6:12].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert (label.tolist(), ends.tolist()) == ([0, 0, 1], [0, 1])
