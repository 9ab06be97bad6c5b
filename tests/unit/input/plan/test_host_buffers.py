"""Memory of batches is used again, and stays behind when a plan is copied."""

import pickle

import numpy as np
import pytest

import unisono as tf
from unisono._src.input.plan import elements, host_buffers


def test_a_plan_with_memory_is_pickled_without_it():
    buffers = host_buffers.Buffers()
    kept = buffers.allocate((1 << 16,), np.uint8)
    assert pickle.loads(pickle.dumps(buffers)).allocate((4,), np.uint8).shape == (4,)
    assert kept.shape == (1 << 16,)


def test_batches_of_a_later_epoch_are_in_the_memory_of_an_earlier_one():
    rows = tf.data.Dataset.range(8).map(lambda x: tf.fill([1 << 14], x))
    made = rows.batch(4)
    first = {id_of(batch) for batch in made}
    assert {id_of(batch) for batch in made} & first


def id_of(batch):
    return np.asarray(batch).ctypes.data


def test_memory_with_room_is_used_again_for_another_shape():
    buffers = host_buffers.Buffers()
    first = buffers.allocate((300, 500, 3), np.uint8, has_room=True)
    address = first.ctypes.data
    del first
    second = buffers.allocate((250, 411), np.float32, has_room=True)
    assert second.ctypes.data == address
    assert buffers.allocate((2, 2), np.uint8, has_room=True).ctypes.data != address


@pytest.mark.parametrize("size", [1, 1000, (1 << 22) - 1, 1 << 22, (1 << 22) + 1])
def test_the_memory_of_an_array_begins_with_it_and_has_room(size):
    made = host_buffers.Buffers().allocate((size,), np.uint8, has_room=True)
    made[:] = 7
    # What libraries return is a view of what they have filled.
    for array in (made, made.view(), made.reshape(1, -1).view(elements.HostArray)):
        memory = host_buffers.find_memory(array)
        assert memory is not None and len(memory) == host_buffers.find_room(size)
        assert len(memory) >= size and memory.ctypes.data == made.ctypes.data
        assert memory.ctypes.data % 64 == 0
        assert (memory[:size] == 7).all()


def test_parts_and_other_arrays_have_no_memory_of_their_own():
    made = host_buffers.Buffers().allocate((300, 500), np.uint8, has_room=True)
    for array in (made[1:], made[:, :-1], made.T, made[::-1], np.empty((300, 500))):
        assert host_buffers.find_memory(array) is None
    reordered = made.reshape(-1)[::-1]
    assert host_buffers.find_memory(reordered) is None


def place(rows, numbers, shape=(1 << 14,), dtype=np.uint8):
    """Returns copies of arrays that are full of their numbers."""
    copies = rows.copiers(len(numbers))
    return [
        copy(np.full(shape, number, dtype))
        for copy, number in zip(copies, numbers, strict=True)
    ]


def test_rows_in_their_order_are_joined_without_a_copy():
    rows = host_buffers.BatchRows(3, host_buffers.Buffers())
    made = place(rows, (7, 8, 9))
    assert rows.join([made[1], made[0], made[2]]) is None
    joined = rows.join(made)
    assert joined is not None and joined[:, 0].tolist() == [7, 8, 9]
    assert np.shares_memory(joined, made[0])


def test_another_beginning_leaves_the_batches_alone_that_were_made():
    rows = host_buffers.BatchRows(2, host_buffers.Buffers())
    first = rows.join(place(rows, (1, 2)))
    place(rows, (3,))
    rows.begin(1)
    second = place(rows, (4, 5, 6))
    joined = rows.join(second[1:])
    assert first is not None and first[:, 0].tolist() == [1, 2]
    assert joined is not None and joined[:, 0].tolist() == [5, 6]


def test_rows_of_several_batches_and_other_arrays_are_not_joined():
    rows = host_buffers.BatchRows(2, host_buffers.Buffers())
    made = place(rows, (0, 1, 2, 3))
    assert rows.join(made[1:3]) is None and rows.join(made[:1]) is None
    assert rows.join([made[0], b"text"]) is None
    assert rows.join([made[0], made[0]]) is None
    own = np.zeros((2, 1 << 14))
    assert rows.join(list(own)) is None
    assert rows.join(place(rows, (4, 5), shape=(3,))) is None


def test_an_array_of_another_shape_or_type_is_copied_on_its_own():
    rows = host_buffers.BatchRows(3, host_buffers.Buffers())
    kept = place(rows, (0,))
    for shape, dtype in (((1 << 15,), np.uint8), ((1 << 14,), np.int8)):
        (other,) = place(rows, (1,), shape, dtype)
        assert other.shape == shape and other.dtype == dtype and (other == 1).all()
        assert not np.shares_memory(other, kept[0])


def test_no_memory_is_asked_for_a_size_that_stands_for_all_elements():
    rows = host_buffers.BatchRows(1 << 62, host_buffers.Buffers())
    assert place(rows, (7,))[0].tolist() == [7] * (1 << 14)


def test_a_batch_of_which_no_row_is_left_is_forgotten():
    rows = host_buffers.BatchRows(2, host_buffers.Buffers())
    for number in range(100):
        place(rows, (number, number))
    assert len(rows._batches) == 1
