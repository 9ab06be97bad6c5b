import re

import pytest
from hypothesis import given, strategies as st

import unisono as tf
from tests.unit.input.pipelines import Dataset

DEFAULTS = [0.0, tf.float64, 7, tf.int64, "none"]
# Numbers halfway between two of float32, or nearly; beyond its range; and what Python's
# own functions read in another way.
FLOATS = [
    "16777217", "16777219", "1.000000059604644775390625", "1.00000005960464477539062",
    "1.00000005960464477539063", "-33554433.0", "7.0064923216240853546186479e-46",
    "7.0064923216240853546186480e-46", "1e-46", "1.1754943e-38", "3.4028236e38", "1e39",
    "-1e400", "nan", "-inf", "-0.0", "0x1F", " 2.5 ", "1.", ".5", "12e0",
]  # fmt: skip
WRONG = ["1_0", "x", "1.5.5", "0x", "--1"]


def alone(lines):
    """The fields of lines that are decoded one after the other, as columns."""
    rows = [tf.io.decode_csv(line, DEFAULTS) for line in lines]
    return [
        [getattr(x, "item", x.numpy)() for x in column]
        for column in zip(*rows, strict=True)
    ]


def same(lines):
    together = [x.tolist() for x in tf.io.decode_csv(lines, DEFAULTS)]
    assert repr(alone(lines)) == repr(together)


@pytest.mark.parametrize("text", FLOATS)
def test_one_line_has_the_numbers_that_many_have(text):
    line = f"{text},{text},-3,-99999999999,a_b"
    same([line])
    found = tf.io.decode_csv(line, DEFAULTS)
    assert [x.numpy().dtype for x in found[:4]] == ["f4", "f8", "i4", "i8"]


@given(
    st.lists(
        st.tuples(
            st.floats(width=32).map(repr)
            | st.decimals(allow_nan=False, allow_infinity=False).map(str)
            | st.just(""),
            st.floats().map(repr),
            st.integers(-(2**31), 2**31 - 1).map(str) | st.just(""),
            st.integers(-(2**63), 2**63 - 1).map(str),
            st.sampled_from(["", "a", '"a,b"', '"say ""a"""', "b_c", "e"]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_lines_alone_and_together_are_the_same(rows):
    same([",".join(row) for row in rows])


@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("text", [*WRONG, "99999999999999999999"])
def test_a_line_that_is_wrong_is_told_as_in_a_batch(column, text):
    fields = ["1", "2", "3", "4", "5"]
    fields[column] = text
    line = ",".join(fields)
    if column < 2 and text[0] == "9":
        return same([line])
    with pytest.raises(tf.errors.InvalidArgumentError) as one:
        tf.io.decode_csv(line, DEFAULTS)
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(str(one.value))):
        tf.io.decode_csv([line], DEFAULTS)


@pytest.mark.parametrize(
    "lines", [["1,2", "3,4,5"], ["1", "2,3,4"], ["1,2,3", "4"], ["1,2,3,4", "5,6"]]
)
def test_fields_that_move_from_one_line_to_the_next_are_an_error(lines):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expect 2 fields"):
        tf.io.decode_csv(lines, [0, 0])


def test_numbers_of_a_line_have_tensorflows_operators_in_a_dataset():
    def parse(line):
        x, y, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
        return tf.stack([x, y]) * 2.0, label / 2, label % 2

    dataset = Dataset.from_tensor_slices(["1.5,2.5,3", "0.5,,4"]).map(parse)
    (pair, half, rest), (last, _, _) = dataset
    assert (pair.dtype, pair.tolist(), last.tolist()) == ("f4", [3, 5], [1, 0])
    assert (half.dtype, float(half), int(rest)) == ("f8", 1.5, 1)
    wrong = Dataset.from_tensor_slices(["1,2,3"]).map(lambda x: parse(x)[1] + label(x))
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError)):
        list(wrong)


def label(line):
    return tf.io.decode_csv(line, [0.0, 0.0, 0])[2] // 0
