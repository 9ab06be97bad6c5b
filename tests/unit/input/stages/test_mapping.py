"""What functions return: one array filled again and again, or new ones."""

import itertools
import threading
import time

import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import COUNTS, Dataset, flat
from unisono._src.input.plan import elements
from unisono._src.input.stages import mapping


def refilled(shape):
    """Functions that return the same memory on every call."""
    kept = np.zeros((2, *shape))

    def whole(x):
        kept[:] = x
        return kept

    def view(x):
        kept[:] = x
        return kept[0]

    def parts(x):
        kept[:] = x
        return {"a": kept, "b": (kept[1:], x)}

    return whole, view, parts


def first(x):
    return x["b"][0] if isinstance(x, dict) else x


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize(
    "way",
    [
        lambda d: d,
        lambda d: d.batch(2).unbatch(),
        lambda d: d.shuffle(3, seed=1).take(5),
        lambda d: d.prefetch(2),
    ],
)
def test_a_function_may_fill_one_array_again_and_again(which, way):
    function = refilled((3,))[which]
    dataset = Dataset.range(5).map(function)
    found = [float(first(x).flat[0]) for x in list(way(dataset))]
    assert sorted(found) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fetch", [True, False])
@pytest.mark.parametrize("n", COUNTS)
def test_distributed_batches_do_not_change_later(n, fetch):
    function = refilled((8,))[1]
    dataset = Dataset.range(6).map(function)
    options = uni.distribute.InputOptions(experimental_fetch_to_device=fetch)
    for given in (dataset, dataset.prefetch(3)):
        made = mirrored(n).experimental_distribute_dataset(given, options)
        assert flat(n, list(made)) == [float(i) for i in range(6) for _ in range(8)]


@pytest.mark.parametrize("n", COUNTS)
def test_distributed_text_does_not_change_later(n):
    kept = np.empty(8, object)

    def fill(i):
        kept[:] = [b"%d" % i] * 8
        return kept

    strategy = mirrored(n)
    made = list(strategy.experimental_distribute_dataset(Dataset.range(4).map(fill)))
    parts = [strategy.experimental_local_results(step) for step in made]
    found = [text for step in parts for part in step for text in np.ravel(part)]
    assert found == [b"%d" % i for i in range(4) for _ in range(8)]


def test_what_a_scan_gives_does_not_change_later():
    kept = np.zeros(2)

    def add(state, x):
        kept[:] = state + x
        return state + x, kept

    found = list(Dataset.range(5).scan(np.int64(0), add))
    assert [x[0] for x in found] == [0, 1, 3, 6, 10]


def test_who_copies_each_element_is_given_what_the_function_returned():
    kept = np.zeros(3)
    node = Dataset.range(4).map(lambda i: kept)._node
    (one,) = mapping.lending_cursor(node).read(1)
    assert one is kept
    for found in (mapping.lending_cursor(node).read(2), node.cursor().read(1)):
        assert not any(np.shares_memory(x, kept) for x in found)


@pytest.mark.parametrize(
    "kept",
    [
        np.zeros(4).reshape(2, 2),
        np.zeros(5)[1:],
        np.frombuffer(bytearray(32), np.float64),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_view_that_is_filled_again_and_again(kept, nested):
    def fill(i):
        kept[:] = i
        return {"a": kept} if nested else kept

    found = list(Dataset.range(4).map(fill))
    assert [float((x["a"] if nested else x).flat[0]) for x in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
@pytest.mark.parametrize("parallel", [None, 2])
def test_a_function_may_divide_its_argument_as_a_tensor(kind, parallel):
    images = np.full((4, 2, 2), 51, kind)

    def scale(image, label):
        image /= 255
        label += 1
        return image, label

    pairs = Dataset.from_tensor_slices((images, np.zeros((4, 1), np.int32)))
    for image, label in pairs.map(scale, parallel):
        np.testing.assert_allclose(image, 0.2, rtol=1e-6)
        assert label.tolist() == [1]
    assert (images == 51).all()


def test_a_function_does_not_change_what_a_generator_yields_again():
    kept = np.ones(3, np.float32)

    def double(x):
        x *= 2
        return x

    spec = uni.TensorSpec((3,), np.float32)
    made = Dataset.from_generator(lambda: [kept, kept], output_signature=spec)
    assert [x.tolist() for x in made.map(double)] == [[2.0] * 3] * 2
    assert kept.tolist() == [1.0] * 3


def test_an_element_that_is_read_may_be_divided_as_a_tensor():
    given = np.full((1, 2), 4.0)
    (x,) = Dataset.from_tensor_slices(given)
    kept = x
    x /= 2
    x[0] += 1
    assert (x.tolist(), kept.tolist()) == ([3.0, 2.0], [4.0, 4.0])


def test_functions_get_arrays_whose_results_are_plain_for_the_next_stage():
    seen = []
    rows = Dataset.from_tensor_slices(np.arange(6.0).reshape(3, 2))
    made = rows.map(lambda x: x + 1).filter(lambda x: x.sum() > 3)
    table = {7.0: "seven", 11.0: "eleven"}
    for x in made.map(lambda x: seen.append(table[x.sum()]) or x):
        assert type(x.numpy()) is np.ndarray
    assert seen == ["seven", "eleven"]


def test_the_text_of_a_dataset_tells_the_error_of_its_function():
    def read(x):
        return x.pixels

    told = repr(Dataset.range(3).map(read))
    assert "AttributeError: 'HostArray' object has no attribute 'pixels'" in told


def test_a_map_with_one_call_at_a_time_runs_in_processes_if_these_are_asked_for():
    parent = Dataset.range(2)._node
    elsewhere = parent.cursor()
    node = mapping.Map(parent, lambda x: x, 1, run=lambda _: elsewhere)
    assert mapping.lending_cursor(node) is elsewhere


def numbers(steps):
    return [x for step in steps for x in np.ravel(step).tolist()]


def test_threads_lose_no_element_beside_those_that_raise():
    def function(x):
        if x % 10 in (3, 4):
            raise ValueError(f"no {x}")
        return x

    def elements():
        yield from range(50)

    def source(x):
        if x == 17:
            raise ValueError("unread")
        return x

    made = Dataset.from_generator(elements, output_signature=uni.TensorSpec((), int))
    made = made.map(source).map(function, num_parallel_calls=2).ignore_errors()
    wanted = [x for x in range(50) if x % 10 not in (3, 4) and x != 17]
    assert numbers(made.batch(32)) == numbers(made) == wanted


def test_threads_that_take_several_elements_at_once_resume_anywhere():
    made = Dataset.range(70).map(lambda x: x * 2, num_parallel_calls=2).batch(16)
    for stop in range(6):
        first = iter(made)
        read = [x for _ in range(stop) for x in next(first).tolist()]
        second = iter(made)
        second.set_state(first.get_state())
        assert read + numbers(second) == [2 * x for x in range(70)]
        first.close()
        second.close()


def test_a_function_that_was_slow_runs_in_threads_from_the_first_element_on():
    threads = []

    def slow(x):
        threads.append(threading.current_thread().name)
        sum(range(50_000))
        return x

    made = Dataset.range(12).map(slow, num_parallel_calls=uni.data.AUTOTUNE)
    for _ in range(2):
        assert numbers(made) == list(range(12))
    assert not threads[0].startswith("unisono-map")
    assert all(name.startswith("unisono-map") for name in threads[12:])


@pytest.mark.parametrize(
    ("times", "in_this_thread"),
    [
        # Only the first call is slow: it may load a library.
        ([0.05, 0, 0, 0, 0, 0, 0, 0, 0], 12),
        ([0.05, 0.004, 0.004, 0.004], 3),
        # Not much slower than starting a thread: more of them are timed.
        ([0.05, 0.0005, 0.0005, 0.0005], 8),
    ],
)
def test_as_few_calls_are_timed_as_are_needed(monkeypatch, times, in_this_thread):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    threads = []

    def work(x):
        threads.append(threading.current_thread().name.startswith("unisono-map"))
        clock[0] += times[min(len(threads), len(times)) - 1]
        return x

    made = Dataset.range(12).map(work, num_parallel_calls=uni.data.AUTOTUNE)
    assert numbers(made) == list(range(12))
    assert threads == [False] * in_this_thread + [True] * (12 - in_this_thread)


def large(x):
    """Returns an element of a large array, a small one and a number."""
    return uni.fill([1 << 14], x), {"few": uni.fill([2], x), "one": x}


@pytest.mark.parametrize("calls", [2, uni.data.AUTOTUNE])
@pytest.mark.parametrize("size", [1, 3, 8, 1000])
def test_threads_fill_batches_of_large_arrays(monkeypatch, calls, size):
    monkeypatch.setattr(mapping, "_WORTH_A_THREAD", 0.0)
    dataset = Dataset.range(41).map(large, num_parallel_calls=calls).batch(size)
    # Kept, so that a batch in the memory of another would show.
    for _ in range(2):
        kept = list(dataset)
        assert [len(whole) for whole, _ in kept[:-1]] == [size] * (len(kept) - 1)
        for whole, rest in kept:
            wanted = np.asarray(rest["one"])
            np.testing.assert_array_equal(whole, np.repeat(wanted[:, None], 1 << 14, 1))
            np.testing.assert_array_equal(rest["few"], wanted[:, None] + [[0, 0]])
        read = np.concatenate([rest["one"] for _, rest in kept])
        assert read.tolist() == list(range(41))


def test_a_batch_of_large_arrays_is_made_where_threads_have_put_them(monkeypatch):
    stacked = []
    stack = elements._stack_column
    monkeypatch.setattr(
        elements,
        "_stack_column",
        lambda column, allocate: stacked.append(len(column)) or stack(column, allocate),
    )
    dataset = Dataset.range(10).map(lambda x: uni.fill([1 << 14], x), 2).batch(4)
    assert [np.asarray(batch)[:, 5].tolist() for batch in dataset] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    # The last one alone, which is not full.
    assert stacked == [2]


def test_an_array_that_a_thread_fills_again_is_copied_to_each_row():
    own = threading.local()

    def fill(x):
        kept = vars(own).setdefault("kept", np.zeros(1 << 13))
        kept[:] = x
        return kept

    dataset = Dataset.range(12).map(fill, num_parallel_calls=3).batch(4)
    found = [np.asarray(batch) for batch in dataset]
    for number, batch in enumerate(found):
        assert batch[:, 0].tolist() == [4 * number + i for i in range(4)]
        assert (batch == batch[:, :1]).all()


def test_batches_of_large_arrays_are_right_after_a_failure_and_a_restore():
    def fail_at_five(x):
        if x == 5:
            raise KeyError("five")
        return uni.fill([1 << 14], x)

    dataset = Dataset.range(16).map(fail_at_five, num_parallel_calls=2).batch(4)
    iterator = iter(dataset)
    assert np.asarray(next(iterator))[:, -1].tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="five"):
        next(iterator)
    other = iter(dataset)
    other.set_state(iterator.get_state())
    for reader in (iterator, other):
        found = [np.asarray(batch)[:, -1].tolist() for batch in reader]
        assert found == [[6, 7, 8, 9], [10, 11, 12, 13], [14, 15]]


def test_a_batch_that_is_kept_stays_what_it_is_when_its_elements_are_made_again():
    calls = itertools.count()
    dataset = Dataset.range(8).map(lambda x: np.full(1 << 14, next(calls)), 2).batch(4)
    iterator = iter(dataset)
    state = iterator.get_state()
    kept = np.asarray(next(iterator))
    before = kept.copy()
    iterator.set_state(state)
    again = np.asarray(next(iterator))
    np.testing.assert_array_equal(kept, before)
    assert again.min() > before.max()
