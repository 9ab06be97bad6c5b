"""What is noted of the first elements of sources."""

import numpy as np
import pytest

import unisono
from unisono._src.input.plan import first_elements
from unisono.data import Dataset

SPEC = unisono.TensorSpec((), np.int64)


def read(dataset, count, begin=None, is_common=True, has_names=False):
    """Returns what was noted while elements were read, by source."""
    node = dataset._node
    chosen = [node]
    while chosen[-1].parents:
        chosen.append(chosen[-1].parents[0])
    recorder = first_elements.Recorder(chosen, is_common, has_names)
    with recorder.open():
        cursor = node.cursor()
        if begin is not None:
            cursor.set_state(begin)
        cursor.read(count)
        state = cursor.get_state()
    cursor.close()
    return list(recorder.passes.values()), state


def counted(total, calls=None):
    def make():
        if calls is not None:
            calls.append(1)
        return iter(range(total))

    return Dataset.from_generator(make, output_signature=SPEC)


def texts(noted):
    return {n: text.partition(" (")[0] for n, (_, text) in noted.seen.items()}


def test_the_first_sixteen_elements_of_a_source_are_noted():
    (noted,), _ = read(counted(100).batch(20), 2)
    assert texts(noted) == {i: str(i) for i in range(16)}
    assert noted.end is None


def test_the_end_of_a_short_source_is_noted():
    (noted,), _ = read(counted(3).batch(2), 3)
    assert texts(noted) == {0: "0", 1: "1", 2: "2"}
    assert noted.end == 3


def test_nothing_is_read_for_the_notes():
    calls = []
    (noted,), _ = read(counted(9, calls), 2)
    assert list(noted.seen) == [0, 1]
    assert len(calls) == 1


def test_elements_that_are_passed_over_are_noted_as_they_are_read_anyway():
    (noted,), _ = read(counted(9).shard(2, 1), 2)
    assert list(noted.seen) == [0, 1, 2, 3]


def test_numbers_count_from_the_first_element_after_a_position_is_set():
    dataset = counted(50)
    _, state = read(dataset, 20)
    (noted,), _ = read(dataset, 2, state)
    assert texts(noted) == {20: "20", 21: "21"}


def test_a_source_that_is_opened_late_or_in_a_thread_is_noted():
    for dataset in (counted(9).cache(), counted(9).cache().prefetch(2).map(int)):
        (noted,), _ = read(dataset, 2)
        assert texts(noted)[0] == "0"


def test_each_pass_is_noted_by_itself():
    passes, _ = read(counted(2).repeat(), 5)
    assert [list(p.seen) for p in passes] == [[0, 1], [0, 1], [0]]


def test_the_datasets_that_functions_make_are_noted_if_all_workers_read_them():
    made = Dataset.range(2).flat_map(lambda i: counted(2))
    assert len(read(made, 4)[0]) == 2
    assert read(made, 4, is_common=False)[0] == []


def test_answers_of_a_filter_are_noted():
    (noted,), _ = read(Dataset.range(9).filter(lambda x: x % 2 == 0), 2)
    assert [mark for mark, _ in noted.seen.values()] == [True, False, True]


def test_outside_a_recorder_nothing_is_watched():
    cursor = counted(3)._node.cursor()
    assert type(cursor).__name__ == "IteratorCursor"


def test_an_exception_ends_the_notes_and_is_raised():
    def broken():
        yield 1
        raise KeyError("no such file")

    recorder = first_elements.Recorder([], True, False)
    with recorder.open():
        cursor = Dataset.from_generator(broken, output_signature=SPEC)._node.cursor()
        with pytest.raises(KeyError):
            cursor.read(4)
    assert recorder.passes["made.0"].end is None


@pytest.mark.parametrize(
    "one, two",
    [
        (np.arange(4), np.arange(4)[::-1]),
        (np.zeros(4), np.zeros(4, np.float32)),
        (np.zeros((2, 2)), np.zeros(4)),
        (b"a", b"b"),
        ({"a": np.zeros(2)}, {"b": np.zeros(2)}),
        (np.arange(10**6), np.roll(np.arange(10**6), 1)),
        (np.array([b"a", b"b"], object), np.array([b"b", b"a"], object)),
    ],
)
def test_checksums_tell_elements_apart(one, two):
    assert first_elements.checksum(one) != first_elements.checksum(two)
    assert first_elements.checksum(one) == first_elements.checksum(one)


def test_checksums_of_file_names_leave_out_the_folder():
    assert first_elements.checksum(b"/a/x", True) == first_elements.checksum(
        b"/b/x", True
    )
    assert first_elements.checksum(b"/a/x", True) != first_elements.checksum(
        b"/a/y", True
    )


def test_only_a_part_of_a_large_array_is_copied():
    large = np.broadcast_to(np.float32(1), (10**6, 10**6))
    assert first_elements.checksum(large) == first_elements.checksum(large)


@pytest.mark.parametrize("empty", [np.zeros((0, 4)), np.array([], object), ()])
def test_empty_elements_have_a_checksum_and_a_text(empty):
    assert isinstance(first_elements.checksum(empty), int)
    assert isinstance(first_elements.shorten(empty), str)
