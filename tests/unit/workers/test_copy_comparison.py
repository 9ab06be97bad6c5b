"""Workers whose copies differ find the variable and the worker by their marks."""

import threading

import jax.numpy as jnp
import pytest

from tests.unit.workers.test_worker_guard import Store
from unisono._src.workers import copy_comparison
from unisono._src.workers.copy_comparison import CopyComparison, TakenSums


def take(*rows, names=("a", "b")):
    """Returns the checksums of variables, a row for each device."""
    numbered = {10 + i: name for i, name in enumerate(names)}
    return [TakenSums(numbered, [jnp.asarray(rows, jnp.uint32)])]


def compare(every, marks):
    """Has all workers look at the same time, as their threads do."""
    found = {}

    def look(worker):
        others = {i: m for i, m in enumerate(marks) if i != worker}
        found[worker] = every[worker].find_difference(others)

    threads = [threading.Thread(target=look, args=(i,)) for i in range(len(every))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [found[i] for i in range(len(every))]


def make(count):
    store = Store()
    return [CopyComparison(store, i, 0.05) for i in range(count)]


def add_all(every, step, taken):
    for one, sums in zip(every, taken, strict=True):
        one.add(step, sums)
    return [dict(one.collect()) for one in every]


def test_equal_copies_have_equal_marks_on_any_number_of_devices():
    every = make(3)
    marks = add_all(every, 5, [take([1, 2]), take([1, 2], [1, 2]), take([1, 2])])
    assert marks[0] == marks[1] == marks[2]
    assert compare(every, marks) == [None] * 3


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_three_workers_name_the_one_that_differs(odd):
    every = make(3)
    add_all(every, 5, [take([1, 2])] * 3)
    marks = add_all(every, 10, [take([1, 2 + (i == odd)]) for i in range(3)])
    for error in compare(every, marks):
        assert (error.worker, error.step) == (odd, 10)
        assert f"'b' differ before step 10: worker {odd} has another" in str(error)
        assert "the same before step 5" in str(error)


def test_two_workers_name_the_variable_and_nobody():
    every = make(2)
    marks = add_all(every, 10, [take([1, 2]), take([9, 3])])
    for error in compare(every, marks):
        assert error.worker is None
        assert "variable 'a' (and of 1 more) differ" in str(error)
        assert "worker 0 has 00000001, worker 1 has 00000009" in str(error)


def test_a_device_of_a_worker_is_named():
    every = make(2)
    marks = add_all(every, 10, [take([1, 2], [1, 2]), take([1, 2], [1, 7])])
    for error in compare(every, marks):
        assert error.worker == 1
        assert "device 1 of worker 1 has another value than the other 3" in str(error)


def test_a_process_alone_compares_its_own_devices():
    alone = CopyComparison(None, 0, 0.0)
    alone.add(4, take([1, 2], [1, 2], [1, 2]))
    alone.collect()
    assert alone.find_difference({}) is None
    alone.add(8, take([1, 2], [0, 2], [1, 2]))
    alone.collect()
    assert "'a' differ before step 8: device 1 has" in str(alone.find_difference({}))


def test_a_variable_that_one_worker_still_has_is_no_difference():
    every = make(2)
    more = take([1, 2, 3], names=("a", "b", "gone"))
    marks = add_all(every, 10, [take([1, 2]), more])
    assert marks[0] != marks[1]
    assert compare(every, marks) == [None, None]
    # Nor is it asked for again, and a true difference is still found.
    assert compare(every, marks) == [None, None]
    marks = add_all(every, 20, [take([1, 2]), take([1, 5, 3], names=("a", "b", "c"))])
    assert "'b'" in str(compare(every, marks)[0])


def test_a_worker_that_does_not_answer_is_waited_for_and_then_told():
    first, silent = make(2)
    first.add(10, take([1, 2]))
    silent.add(10, take([1, 3]))
    told = {1: dict(silent.collect())}
    first.collect()
    for _ in range(copy_comparison._TRIES - 1):
        assert first.find_difference(told) is None
    assert "the variable is not known" in str(first.find_difference(told))


def test_a_worker_that_has_ended_leaves_its_checksums_behind():
    first, last = make(2)
    first.add(10, take([1, 2]))
    last.add(10, take([1, 3]))
    first.collect()
    first.tell_last()
    last.collect()
    told = {0: dict(first.collect())}
    assert "'b'" in str(last.find_difference(told, must_end=True))


def test_malformed_checksums_of_others_are_not_believed():
    first, other = make(2)
    first.add(10, take([1, 2]))
    first.collect()
    place = f"{copy_comparison._PLACE}/10/1"
    for text in ("[1, 2]", "{", '{"a": [1]}', '{"10": 1}'):
        other._client.key_value_set(place, text, allow_overwrite=True)
        assert first.find_difference({1: {10: 77}}, must_end=True) is None
        first._equal_until = 0


def test_old_comparisons_are_forgotten():
    alone = CopyComparison(None, 0, 0.0)
    for step in range(1, 1001):
        alone.add(step, take([1, 2]))
    assert len(alone.collect()) == copy_comparison.KEPT
    assert not alone.is_waiting
