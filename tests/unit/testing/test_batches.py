from typing import Any

import numpy as np

from unisono._src.testing import batches

BATCH: dict[str, Any] = {
    "x": np.arange(12.0).reshape(6, 2),
    "y": np.arange(6),
    "rate": 0.5,
}


def test_rows_are_picked_of_every_array_that_has_them():
    picked = batches.pick(BATCH, np.array([5, 0]))
    np.testing.assert_array_equal(picked["x"], [[10, 11], [0, 1]])
    np.testing.assert_array_equal(picked["y"], [5, 0])
    assert picked["rate"] == 0.5


def test_parts_are_those_of_a_distributed_dataset():
    sizes = [batches.count_rows(batches.part(BATCH, 4, i)) for i in range(4)]
    assert sum(sizes) == 6 and sizes == sorted(sizes, reverse=True)


def test_equal_parts_repeat_the_first():
    np.testing.assert_array_equal(
        batches.repeat_part(BATCH, 3)["y"], [0, 1, 0, 1, 0, 1]
    )
    np.testing.assert_array_equal(batches.repeat_part(BATCH, 8)["y"], [0] * 8)


def test_one_row_is_changed_and_the_batch_stays():
    changed = batches.change_row(BATCH, 2)
    assert not np.array_equal(changed["x"][2], BATCH["x"][2])
    np.testing.assert_array_equal(
        np.delete(changed["x"], 2, 0), BATCH["x"][[0, 1, 3, 4, 5]]
    )
    assert BATCH["x"][2, 0] == 4.0


def test_orders_have_every_row_once():
    for order in batches.orders(5):
        assert sorted(order) == list(range(5))
    assert all(len(order) == 0 for order in batches.orders(0))
