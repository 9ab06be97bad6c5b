"""Maps that are compiled, and called once for many elements."""

import numpy as np
import pytest

import unisono as tf


def compiled(dataset):
    options = tf.data.Options()
    options.compiled_maps = True
    return dataset.with_options(options)


def source():
    images = np.arange(40 * 4, dtype=np.uint8).reshape(40, 2, 2)
    return tf.data.Dataset.from_tensor_slices((images, np.arange(40) + 2**40))


def scaled(x, y):
    return tf.cast(x, tf.float32) / 255.0, y


def flat(elements):
    return [np.asarray(part) for element in elements for part in element]


def check_close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 40, 64])
def test_a_compiled_map_gives_what_the_map_gives(size):
    dataset = source().map(scaled).batch(size)
    check_close(flat(compiled(dataset)), flat(dataset))


def test_the_function_is_called_three_times_for_each_size_of_a_batch():
    calls = []

    def noted(x, y):
        calls.append(type(x).__name__)
        return scaled(x, y)

    dataset = compiled(source().map(noted).batch(8))
    dataset.element_spec  # noqa: B018
    calls.clear()
    assert len(list(dataset)) == 5
    # Once on the host, whose types count, and twice to compare what it computes.
    assert len(calls) == 3


def test_numbers_of_64_bits_keep_their_type():
    dataset = compiled(source().map(lambda x, y: (y * 2, y)).batch(40))
    ((twice, same),) = list(dataset)
    assert twice.dtype == same.dtype == np.int64
    assert twice.tolist() == [2 * n for n in same.tolist()]


@pytest.mark.parametrize("taken", [0, 1, 5, 11, 39, 40])
def test_an_iterator_that_stopped_anywhere_goes_on_there(taken):
    dataset = compiled(source().batch(16).unbatch().map(scaled))
    iterator = iter(dataset)
    for _ in range(taken):
        next(iterator)
    saved = iterator.get_state()
    rest = flat(iterator)
    assert len(rest) == 2 * (40 - taken)
    other = iter(dataset)
    other.set_state(saved)
    check_close(flat(other), rest)


def test_a_function_with_random_numbers_is_refused():
    numbers = tf.data.Dataset.from_tensor_slices(np.ones(8, np.float32))
    with pytest.raises(ValueError, match="the same numbers in all calls"):
        list(compiled(numbers.map(lambda x: x + tf.random.uniform([]))))
    with pytest.raises(ValueError, match="always compute the same"):
        list(compiled(numbers.map(lambda x: x + np.random.uniform())))


def test_a_function_that_counts_its_calls_is_refused():
    counts = iter(range(1000))
    numbers = tf.data.Dataset.range(8).map(lambda x: x + next(counts))
    with pytest.raises(ValueError, match="always compute the same"):
        list(compiled(numbers))


def test_what_cannot_be_traced_and_text_are_refused_by_name():
    def odd(x):
        return x if x % 2 else -x

    with pytest.raises(ValueError, match=r"JAX can trace\. odd failed"):
        list(compiled(tf.data.Dataset.range(8).map(odd)))
    words = tf.data.Dataset.from_tensor_slices(["a", "b"]).map(lambda x: x)
    with pytest.raises(ValueError, match="is for numbers"):
        list(compiled(words))


def test_the_description_says_that_a_map_is_compiled():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    batches = compiled(source().map(scaled).batch(8))
    told = strategy.experimental_distribute_dataset(batches).describe().functions
    assert "Map(scaled) compiled, for many elements at once" in told


def test_results_of_other_types_than_without_the_option_are_refused():
    numbers = tf.data.Dataset.from_tensor_slices(np.array([51, 3], np.uint8))
    with pytest.raises(TypeError, match=r"Cannot convert 255\.0"):
        list(compiled(numbers.map(lambda x: x / 255.0)))
    with pytest.raises(ValueError, match=r"returns float64\[\] there, and float32"):
        list(compiled(numbers.map(lambda x: 1.5)))


def test_random_numbers_that_are_the_same_twice_are_noticed():
    numbers = tf.data.Dataset.range(4)
    with pytest.raises(ValueError, match="draws random numbers"):
        list(compiled(numbers.map(lambda x: x + int(np.random.rand() > 2))))
