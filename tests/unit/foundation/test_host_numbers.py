"""NumPy's numbers in results have TensorFlow's method `numpy`."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from unisono._src.foundation import host_numbers
from unisono.data import Dataset

TWO = ["x", "y"]
KINDS = [np.int8, np.int64, np.uint16, np.float16, np.float32, np.float64, np.complex64]


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_stays_what_it_was(kind):
    plain = kind(3)
    number = host_numbers.to_host_number(plain)
    assert isinstance(number, kind)
    assert (number, hash(number), repr(number)) == (plain, hash(plain), repr(plain))
    assert type(number.numpy()) is kind
    assert np.asarray([number]).dtype == kind
    if kind is not np.float64:
        assert jnp.asarray(number).dtype == jnp.asarray(plain).dtype


def test_the_cardinality_has_numpy():
    dataset = Dataset.range(7)
    assert dataset.cardinality().numpy() == 7
    assert tf.data.experimental.cardinality(dataset).numpy() == 7
    s = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert s.experimental_distribute_dataset(dataset.batch(2)).cardinality.numpy() == 4


def test_a_comparison_of_numbers_has_numpy():
    endless = Dataset.range(7).repeat().cardinality()
    found = (endless == tf.data.INFINITE_CARDINALITY).numpy()
    assert type(found) is np.bool_ and found
    assert not (endless == tf.data.UNKNOWN_CARDINALITY).numpy()
    number = host_numbers.to_host_number(np.float32(3))
    assert (number < 4).numpy() and not (number >= 4) and (number != 4).numpy()
    assert repr(number > 2) == repr(np.bool_(True)) and {number > 2: 1} == {True: 1}
    assert type((number > 2) & (number < 4)) is np.bool_
    assert (number == jnp.asarray([3.0, 4.0])).tolist() == [True, False]
    assert (number == np.asarray([3.0, 4.0])).tolist() == [True, False]
    with pytest.raises(TypeError, match="Cannot convert 'text'"):
        assert number != "text"


def test_numbers_in_local_results_have_numpy():
    s = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = s.experimental_local_results(s.run(lambda: np.float32(3)))
    assert [x.numpy() for x in found] == [3, 3]
    nested = s.run(lambda: {"loss": (np.float64(2), "text")})
    for part in s.experimental_local_results(nested):
        assert part["loss"][0].numpy() == 2
        assert part["loss"][1] == "text"


def test_a_structure_without_numbers_is_the_same_object():
    given = {"a": [1.0, "text"]}
    assert tf.distribute.get_strategy().experimental_local_results(given)[0] is given


def test_an_entry_of_an_element_has_numpy():
    labels = next(iter(Dataset.range(4).batch(4)))
    assert labels[2].numpy() == 2
    assert [x.numpy() for x in labels] == [0, 1, 2, 3]
    assert {0: "zero"}[labels[0]] == "zero"


@pytest.mark.parametrize(
    ("compute", "wanted"),
    [
        (lambda s: s + tf.constant("T"), b"cT"),
        (lambda s: tf.constant("T") + s, b"Tc"),
        (lambda s: s + tf.constant(["T\0", "U"]), [b"cT\0", b"cU"]),
        (lambda s: tf.constant(["T", "U"]) + s, [b"Tc", b"Uc"]),
        (lambda s: s + TWO, [b"cx", b"cy"]),
        (lambda s: TWO + s, [b"xc", b"yc"]),
        (lambda s: s + np.array("z", object), b"cz"),
        (lambda s: np.array(["z", "w"]) + s, [b"zc", b"wc"]),
        (lambda s: "\u00e9" + s + b"x", b"\xc3\xa9cx"),
        (lambda s: s[tf.newaxis], [b"c"]),
        (lambda s: s[..., None, None], [[b"c"]]),
    ],
)
def test_one_text_and_arrays_of_texts_are_joined(compute, wanted):
    # Recorded from TensorFlow 2.21.
    dataset = tf.data.Dataset.from_tensor_slices(["c"])
    (found,) = dataset.map(compute)
    assert found.numpy() == wanted if found.shape == () else found.tolist() == wanted


def test_texts_of_a_dataset_are_reduced_to_one():
    dataset = tf.data.Dataset.from_tensor_slices(["a", "b", "c"])
    assert dataset.reduce("", lambda x, y: x + y).numpy() == b"abc"


def test_a_number_is_not_joined_to_a_text():
    for compute in (lambda s: s + 1, lambda s: 1 + s, lambda s: s + np.array([1, 2])):
        with pytest.raises(TypeError, match="string"):
            compute(host_numbers.to_host_array(b"c"))


def test_one_text_is_a_tensor_with_a_shape():
    text = host_numbers.to_host_array(b"c")
    assert tf.is_tensor(text) and not tf.is_tensor(b"c")
    text.set_shape([])
    with pytest.raises(ValueError, match="incompatible"):
        text.set_shape([1])
