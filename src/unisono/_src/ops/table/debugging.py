"""Names of printing and assertions, which are written by hand."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_VALUES = "unisono._src.ops.checks"
_SHAPES = "unisono._src.ops.shape_checks"

ROWS = (
    Name(
        "print",
        "Prints values in TensorFlow's format; in a compiled step, each time it runs.",
        target="unisono._src.ops.printing:print_values",
        difference="With several devices a compiled step prints in no certain order.",
    ),
    Name(
        "debugging.Assert",
        "Raises unless a condition holds; the error shows the given values.",
        target=f"{_VALUES}:Assert",
        also=("Assert",),
    ),
    Name(
        "debugging.assert_all_finite",
        "Returns the value; raises if an element is infinite; see `check_numerics`.",
        target=f"{_VALUES}:assert_all_finite",
    ),
    Name(
        "debugging.assert_equal",
        "Raises unless two values are the same in all elements.",
        target=f"{_VALUES}:assert_equal",
        also=("assert_equal",),
    ),
    Name(
        "debugging.assert_greater",
        "Raises unless all elements are greater than those of `y`; see `assert_equal`.",
        target=f"{_VALUES}:assert_greater",
        also=("assert_greater",),
    ),
    Name(
        "debugging.assert_greater_equal",
        "Raises unless all elements are at least those of `y`; see `assert_equal`.",
        target=f"{_VALUES}:assert_greater_equal",
    ),
    Name(
        "debugging.assert_integer",
        "Raises `TypeError` unless a value has whole numbers.",
        target=f"{_SHAPES}:assert_integer",
    ),
    Name(
        "debugging.assert_less",
        "Raises unless all elements are less than those of `y`; see `assert_equal`.",
        target=f"{_VALUES}:assert_less",
        also=("assert_less",),
    ),
    Name(
        "debugging.assert_less_equal",
        "Raises unless all elements are at most those of `y`; see `assert_equal`.",
        target=f"{_VALUES}:assert_less_equal",
    ),
    Name(
        "debugging.assert_near",
        "Raises unless ``|x - y| <= atol + rtol * |y|`` in all elements.",
        target=f"{_VALUES}:assert_near",
    ),
    Name(
        "debugging.assert_negative",
        "Raises `InvalidArgumentError` unless all elements are less than zero.",
        target=f"{_VALUES}:assert_negative",
    ),
    Name(
        "debugging.assert_non_negative",
        "Raises `InvalidArgumentError` unless all elements are at least zero.",
        target=f"{_VALUES}:assert_non_negative",
    ),
    Name(
        "debugging.assert_non_positive",
        "Raises `InvalidArgumentError` unless all elements are at most zero.",
        target=f"{_VALUES}:assert_non_positive",
    ),
    Name(
        "debugging.assert_none_equal",
        "Raises unless two values differ in all elements; see `assert_equal`.",
        target=f"{_VALUES}:assert_none_equal",
    ),
    Name(
        "debugging.assert_positive",
        "Raises `InvalidArgumentError` unless all elements are greater than zero.",
        target=f"{_VALUES}:assert_positive",
    ),
    Name(
        "debugging.assert_proper_iterable",
        "Raises `TypeError` for an array, a text, or what cannot be iterated over.",
        target=f"{_SHAPES}:assert_proper_iterable",
    ),
    Name(
        "debugging.assert_rank",
        "Raises `ValueError` unless a value has a certain number of axes.",
        target=f"{_SHAPES}:assert_rank",
        also=("assert_rank",),
    ),
    Name(
        "debugging.assert_rank_at_least",
        "Raises `ValueError` unless a value has at least so many axes.",
        target=f"{_SHAPES}:assert_rank_at_least",
    ),
    Name(
        "debugging.assert_rank_in",
        "Raises `ValueError` unless the number of axes is one of several.",
        target=f"{_SHAPES}:assert_rank_in",
    ),
    Name(
        "debugging.assert_same_float_dtype",
        "Returns the type of floats that all values have.",
        target=f"{_SHAPES}:assert_same_float_dtype",
    ),
    Name(
        "debugging.assert_scalar",
        "Raises `ValueError` if a value has axes.",
        target=f"{_SHAPES}:assert_scalar",
    ),
    Name(
        "debugging.assert_shapes",
        "Raises `ValueError` unless values have shapes that fit together.",
        target=f"{_SHAPES}:assert_shapes",
    ),
    Name(
        "debugging.assert_type",
        "Raises `TypeError` unless a value has elements of a certain type.",
        target=f"{_SHAPES}:assert_type",
    ),
    Name(
        "debugging.check_numerics",
        "Returns the value; raises if an element is infinite or not a number.",
        target=f"{_VALUES}:check_numerics",
    ),
    Name(
        "debugging.get_log_device_placement",
        "Returns the value that `set_log_device_placement` was given.",
        target=f"{_SHAPES}:get_log_device_placement",
    ),
    Name(
        "debugging.is_numeric_tensor",
        "Returns whether a value is an array of numbers.",
        target=f"{_SHAPES}:is_numeric_tensor",
    ),
    Name(
        "debugging.set_log_device_placement",
        "Keeps the setting, which has no effect: `Strategy.describe` tells devices.",
        target=f"{_SHAPES}:set_log_device_placement",
        difference="It has no effect.",
    ),
)
