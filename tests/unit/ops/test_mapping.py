"""TensorFlow's answers and ours, for the module `mapping`."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "mapping")


def test_compiled_loops_over_rows_give_the_same_and_have_gradients():
    w = unisono.Variable(5.0)

    def compute(x):
        with unisono.GradientTape() as tape:
            tape.watch(x)
            mapped = unisono.map_fn(lambda r: r * w, x)
            scanned = unisono.scan(lambda a, r: a * r, x, reverse=True)
            folded = unisono.foldl(lambda a, r: a * r + w, x)
            y = mapped.sum() + scanned.sum() + folded
        return [mapped, scanned, folded, *tape.gradient(y, [x, w])]

    x = jnp.asarray([1.0, 2.0, 3.0])
    for a, b in zip(compute(x), unisono.function(compute)(x), strict=True):
        np.testing.assert_allclose(a, b)


def test_loops_in_functions_of_datasets_have_text_and_numbers_of_64_bits():
    def function(numbers, texts):
        return (
            unisono.map_fn(lambda row: row * 2, numbers),
            unisono.vectorized_map(lambda row: row + 1, numbers),
            unisono.scan(lambda total, row: total + row, numbers),
            unisono.foldr(lambda total, row: total + row, numbers),
            unisono.map_fn(
                lambda x: unisono.io.decode_raw(x, unisono.uint8),
                texts,
                fn_output_signature=unisono.uint8,
            ),
            unisono.map_fn(unisono.strings.upper, texts),
            unisono.map_fn(unisono.strings.upper, texts[:0]),
        )

    given = np.array([2**40, 3]), np.array([b"ab", b"cd"], object)
    found = next(iter(unisono.data.Dataset.from_tensors(given).map(function)))
    assert [x.tolist() for x in found] == [
        [2**41, 6],
        [2**40 + 1, 4],
        [2**40, 2**40 + 3],
        2**40 + 3,
        [[97, 98], [99, 100]],
        [b"AB", b"CD"],
        [],
    ]


def test_results_of_another_type_than_was_told_are_refused_in_datasets():
    dataset = unisono.data.Dataset.range(3).batch(3)
    with pytest.raises(unisono.errors.InvalidArgumentError, match="expected int64"):
        list(dataset.map(lambda x: unisono.map_fn(lambda row: row / 2, x)))
