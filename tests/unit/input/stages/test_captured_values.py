"""Functions of datasets keep the values of the code that gave them."""

import numpy as np

import unisono as tf
from unisono._src.input.stages import captured_values

scale = 1


def numbers(dataset):
    return [int(x) for x in dataset]


def label(element, number):
    return tf.cast(number, tf.int64)


# TensorFlow's answers for these three.
def test_the_variable_of_a_loop_is_that_of_its_turn():
    made = [
        tf.data.Dataset.range(4).filter(lambda x: x >= k).map(lambda x: x * k)  # noqa: B023
        for k in range(3)
    ]
    assert [numbers(d) for d in made] == [[0, 0, 0, 0], [1, 2, 3], [4, 6]]


def test_a_global_name_that_is_assigned_again_keeps_its_value():
    global scale
    scale = 2
    dataset = tf.data.Dataset.range(3).map(lambda x: label(x, scale))
    scale = 10
    assert numbers(dataset) == [2, 2, 2]


def test_a_function_inside_the_function_keeps_them_too():
    made = [
        tf.data.Dataset.range(2).map(lambda x: (lambda: x + n)())  # noqa: B023
        for n in (10, 20)
    ]
    assert [numbers(d) for d in made] == [[10, 11], [20, 21]]


def test_a_function_that_counts_goes_on_counting():
    count = 0

    def add(x):
        nonlocal count
        count += 1
        return x

    list(tf.data.Dataset.range(3).map(add))
    assert count >= 3

    def change(x):
        global scale
        scale += 1
        return x

    before = scale
    list(tf.data.Dataset.range(3).map(change))
    assert scale >= before + 3


def test_objects_are_shared_and_later_names_are_found():
    seen = []

    def note(x):
        seen.append(int(x))
        return later(x)

    dataset = tf.data.Dataset.range(2).map(note)
    seen.clear()

    def later(x):
        return x + 1

    assert numbers(dataset) == [1, 2]
    assert seen == [0, 1]


def test_what_a_module_has_under_its_name_stays_as_it_is():
    assert captured_values.keep_values(label) is label
    assert captured_values.keep_values(np.sum) is np.sum
    kept = captured_values.keep_values(lambda x, *, y=scale: x + y)
    assert kept(1, y=2) == 3
    assert (kept.__name__, kept.__module__) == ("<lambda>", __name__)
