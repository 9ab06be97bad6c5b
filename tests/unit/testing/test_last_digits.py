import jax.numpy as jnp
import numpy as np
import pytest

from unisono._src.testing import last_digits

WEIGHTS = -np.linspace(0.3, 0.9, 101).astype("f")


@pytest.mark.parametrize("number, units", [(1, 1), (2, 1), (last_digits.FAR, 1000)])
def test_every_number_changes_by_its_rounding_errors(number, units):
    changed = last_digits.change(WEIGHTS, "w", number)
    relative = np.abs(changed.astype(float) / WEIGHTS - 1) / np.finfo("f").eps
    assert changed.dtype == np.float32
    assert 0.4 * units < relative.min() and relative.max() < 2 * units


def test_a_change_depends_on_name_and_number_alone():
    first = last_digits.change(WEIGHTS, "w", 1)
    np.testing.assert_array_equal(first, last_digits.change(WEIGHTS, "w", 1))
    assert np.any(first != last_digits.change(WEIGHTS, "v", 1))
    assert np.any(first != last_digits.change(WEIGHTS, "w", 2))
    np.testing.assert_array_equal(WEIGHTS, last_digits.change(WEIGHTS, "w", 0))


def test_whole_numbers_and_short_ones_stay():
    whole = np.array([0.0, -2.0, 1e9, np.inf], "f")
    np.testing.assert_array_equal(whole, last_digits.change(whole, "w", 1))
    for dtype in (jnp.bfloat16, np.float16, np.int32, np.complex64):
        values = np.asarray(WEIGHTS, dtype)
        np.testing.assert_array_equal(values, last_digits.change(values, "w", 1))


def test_wide_and_missing_numbers_are_taken():
    assert np.isnan(last_digits.change(np.array([np.nan]), "w", 1))[0]
    assert last_digits.change(np.array(0.3), "w", 1) != 0.3
    assert last_digits.change(np.zeros((0, 3)), "w", 1).shape == (0, 3)
