"""Arrays and numbers of the host have TensorFlow's operators."""

import json
import operator
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.unit.foundation import operator_cases
from unisono._src.foundation import host_numbers, host_types

RECORDED = json.loads(operator_cases.RECORDED.read_text(encoding="utf-8"))
ERRORS = (TypeError, ValueError, IndexError, OverflowError)


def make(values, dtype):
    """Returns an array as a dataset gives it."""
    if dtype == "string":
        return host_numbers.to_host_array(host_types.to_text(values))
    return host_numbers.to_host_array(np.asarray(values, dtype))


def make_number(values, dtype):
    """Returns the same; a number is one that indexing an array gives."""
    made = make(values, dtype)
    return made if made.ndim or dtype == "string" else made[None][0]


def differs(found, wanted):
    """Returns whether two recorded results differ by more than rounding."""
    if found is None or wanted is None or found[:2] != wanted[:2]:
        return found != wanted
    pairs = zip(found[2], wanted[2], strict=True)
    return not all(
        a == b or np.isclose(complex(a), complex(b), rtol=1e-5)
        if found[0].startswith(("float", "complex"))
        else a == b
        for a, b in pairs
    )


def is_our_own(text, d):
    """Returns whether this library refuses what TensorFlow computes.

    TensorFlow cuts the fraction off the floats of a NumPy array beside integers, and
    makes bools of NumPy's numbers, and of factors, beside bools.
    """
    if d == "bool":
        return "np." in text or " * " in text
    return d not in ("float32", "complex64") and "np.float64(1.5)" in text


@pytest.mark.parametrize("tensor", [make, make_number])
@pytest.mark.parametrize("d", operator_cases.DTYPES)
def test_every_operator_gives_what_tensorflow_gives(d, tensor):
    wrong = {}
    for text in (text for text, kind in operator_cases.expressions() if kind == d):
        found = operator_cases.evaluate(text, d, tensor, ERRORS)
        wanted = RECORDED[d][text]
        # Whether they are equal to an array of NumPy's is answered, of what it has.
        is_answered = found is None or "==" in text or "!=" in text
        if is_our_own(text, d) and is_answered:
            continue
        if differs(found, wanted):
            wrong[text] = (found, wanted)
    assert not wrong


@pytest.mark.parametrize(
    ("compute", "error", "told"),
    [
        (lambda x: x / 255.0, TypeError, r"255.0 .* uint8.* unisono.cast"),
        (lambda x: x // 0, tf.errors.InvalidArgumentError, "Integer division by zero"),
        (lambda x: x + make([1.0], "float32"), tf.errors.InvalidArgumentError, "float"),
        (lambda x: x + make([1, 2], "uint8"), tf.errors.InvalidArgumentError, r"\[2\]"),
        (lambda x: -x, tf.errors.InvalidArgumentError, "negative takes no .* uint8"),
        (lambda x: x @ x, tf.errors.InvalidArgumentError, "matrices"),
        (lambda x: x + np.array([0.5]), TypeError, "unisono.cast"),
        (lambda x: x == "a", TypeError, "Cannot convert 'a'"),
        (lambda x: x != b"a", TypeError, "Cannot convert b'a'"),
        (lambda x: x == ["a"], TypeError, "Cannot convert"),
        (lambda x: x != np.array("a"), TypeError, "of one type"),
    ],
)
def test_an_error_says_what_to_write(compute, error, told):
    with pytest.raises(error, match=told):
        compute(make([1, 2, 3], "uint8"))


@pytest.mark.parametrize("given", [make([1, 2], "int32"), make_number(3, "float32")])
def test_what_belongs_to_jax_goes_to_jax(given):
    variable = tf.Variable([2.0, 3.0])
    for other in (jnp.asarray([2.0, 3.0]), variable):
        for found in (given * other, other * given, given / other, given < other):
            assert isinstance(found, jax.Array)
    assert jnp.asarray(given).dtype == given.dtype
    assert jax.jit(lambda x: x * 2.5)(given).dtype == jnp.float32


def test_functions_and_methods_of_numpy_stay_its_own():
    x = make([[1, 2], [3, 5]], "uint8")
    plain = x.numpy()
    for compute in (
        np.std, np.var, np.mean, np.median, np.negative, np.abs, np.transpose,
        lambda v: v.std(), lambda v: v.var(axis=0), lambda v: v.mean(), lambda v: v.T,
        lambda v: np.add(v, 1.5), lambda v: np.isclose(v, 2.0), lambda v: v << 1,
        lambda v: np.allclose(v, 1.5, 9), lambda v: np.concatenate([v, v * 1]),
        lambda v: v.astype(np.float32), lambda v: v.reshape(-1), np.unique,
        lambda v: np.percentile(v, 30), lambda v: np.histogram(v)[0], np.asarray,
    ):  # fmt: skip
        found, wanted = compute(x), compute(plain)
        assert np.result_type(found) == np.result_type(wanted)
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(x, plain + 0.0)
    assert (x == plain + 0.5).numpy().sum() == 0
    masked = x + np.ma.masked_array(plain, plain > 2)
    assert masked.mask.sum() == 2


def test_an_array_can_be_pickled_and_is_a_leaf_of_a_tree():
    x = make([1, 2], "int32")
    copied = pickle.loads(pickle.dumps(x))
    assert (copied / 2).numpy().dtype == np.float64
    assert jax.tree.map(lambda v: v + 1, {"x": x})["x"].tolist() == [2, 3]


def test_numbers_of_elements_keep_tensorflows_types():
    seen = []

    def look(x, label):
        seen.append((type(label).__name__, (label / 2).dtype, (x / 255).dtype))
        with pytest.raises(TypeError):
            label * 0.5
        return x / 255, label // 2

    given = (np.ones((3, 2), np.uint8), np.arange(3))
    dataset = tf.data.Dataset.from_tensor_slices(given).map(look).batch(3)
    (x, labels), *_ = dataset
    assert x.dtype == np.float32 and labels.tolist() == [0, 0, 1]
    assert set(seen) == {("HostArray", np.dtype("float64"), np.dtype("float32"))}
    for label in tf.data.Dataset.range(1, 2):
        assert (label / 2).numpy() == 0.5 and (label + (2**63 - 1)).numpy() == -(2**63)


def test_texts_are_compared_with_arrays_of_numpy():
    x = make(["a", "b"], "string")
    for given in (np.array("a"), np.array(b"a"), np.str_("a"), np.array(["a", "c"])):
        assert (x == given).tolist() == [True, False]
        assert (x != given).tolist() == [False, True]


def test_texts_are_joined_and_keep_zeros_at_their_end():
    def function(x):
        one, two = tf.constant("a"), tf.constant(["p", "q"])
        return operator.add(one, "b") + "\0", operator.add(two, x), tf.add(x, "r")

    one, many, named = next(iter(tf.data.Dataset.from_tensors("x").map(function)))
    assert (one.numpy(), named.numpy()) == (b"ab\0", b"xr")
    assert many.tolist() == [b"px", b"qx"]


def test_numbers_that_jax_cannot_hold_are_refused_beside_its_arrays():
    there = jnp.asarray(5)
    large = tf.data.Dataset.from_tensors(2**40)
    for function in (lambda x: x + there, lambda x: x < there, lambda x: x == there):
        with pytest.raises(OverflowError, match=str(2**40)):
            next(iter(large.map(function)))
    small = tf.data.Dataset.from_tensors(2)
    assert next(iter(small.map(lambda x: x + there))) == 7


def test_a_number_of_more_than_64_bits_is_told():
    with pytest.raises(OverflowError, match="add takes numbers of at most 64 bits"):
        next(iter(tf.data.Dataset.from_tensors(1).map(lambda x: x + 2**64)))


def test_a_product_of_matrices_keeps_bfloat16():
    matrix = np.eye(2).astype(tf.bfloat16)
    found = next(iter(tf.data.Dataset.from_tensors(matrix).map(lambda x: x @ x)))
    assert found.dtype == tf.bfloat16 and found.tolist() == matrix.tolist()


def test_quotients_by_zero_are_infinite_without_a_warning():
    def function(x):
        return 1.0 / x, x / 0.0, x // 0.0, x % 0.0, x**-1.0, tf.cast(x, tf.int32) / 0

    given = np.zeros(2, np.float32)
    with np.errstate(all="raise"):
        found = next(iter(tf.data.Dataset.from_tensors(given).map(function)))
    assert np.isinf(found[0]).all() and np.isinf(found[4]).all()
    assert all(np.isnan(found[i]).all() for i in (1, 2, 3, 5))
