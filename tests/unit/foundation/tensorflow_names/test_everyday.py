"""Decorators give functions TensorFlow's paths."""

import pytest

from unisono._src.foundation.tensorflow_names import everyday


@pytest.fixture
def names(monkeypatch):
    """An empty list of names for the test."""
    found = {}
    monkeypatch.setattr(everyday, "NAMES", found)
    return found


def test_a_function_stands_at_all_of_its_paths(names):
    @everyday.everyday_name("math.half", "half", difference="It is exact.")
    def half(x):
        return x / 2

    assert [*names] == ["math.half", "half"]
    assert names["half"] is names["math.half"]
    assert names["half"].value is half
    assert names["half"].path == "math.half"
    assert names["half"].difference == "It is exact."
    assert not names["half"].is_of_arrays
    assert half.__module__ == "unisono.math"


def test_a_function_of_arrays_says_whose_arguments_it_takes_and_its_difference(names):
    @everyday.array_function("math.half", difference="It is exact.")
    def divide_by_two(x, name=None):
        """Returns halves.

        >>> divide_by_two(4)
        2
        """
        return x // 2

    assert names["math.half"].is_of_arrays
    assert divide_by_two.__name__ == "half"
    assert divide_by_two.__doc__ == (
        "Returns halves.\n\n>>> divide_by_two(4)\n2\n\nThe arguments are those of "
        "TensorFlow's ``tf.math.half``; `name` has no effect.\n\nIt is exact.\n"
    )


def test_a_value_may_stand_at_a_path_too(names):
    everyday.add(None, "newaxis")
    assert names["newaxis"].value is None


def test_two_objects_cannot_have_one_path(names):
    everyday.add(abs, "abs")
    with pytest.raises(ValueError, match="'abs' already"):
        everyday.add(max, "max", "abs")
    assert [*names] == ["abs"]


def test_the_names_of_a_public_module_are_those_directly_in_it(names):
    everyday.add(abs, "abs", "math.abs")
    everyday.add(max, "math.deep.max")
    assert [*everyday.names_in("unisono")] == ["abs"]
    assert [*everyday.names_in("unisono.math")] == ["abs"]
    assert [*everyday.names_in("unisono.math.deep")] == ["max"]
