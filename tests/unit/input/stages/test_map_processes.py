"""Maps in Grain's worker processes."""

import gc
import multiprocessing
import os

import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset, flat, resumed, saved

pytest.importorskip("grain")


def make():
    """Pairs of a number and of the process that made it, shuffled."""
    options = uni.data.Options()
    options.worker_processes = 2
    return (
        Dataset.range(20)
        .shuffle(5, seed=3)
        .map(lambda x: (x * 2, np.int64(os.getpid())), num_parallel_calls=2)
        .map(lambda x, pid: (x + 1, pid))
        .batch(3)
        .with_options(options)
    )


def ended():
    gc.collect()
    for child in multiprocessing.active_children():
        child.join(10)
    return multiprocessing.active_children() == []


@pytest.fixture(scope="module")
def finished():
    """The steps of a run and its position after the first.

    For the whole module, because Grain keeps a pool of threads for good from here on.
    """
    iterator = iter(mirrored(2).experimental_distribute_dataset(make()))
    first = next(iterator)
    state = saved(iterator)
    steps = [first, *iterator]
    iterator.close()
    return steps, state


def test_a_map_runs_in_processes_and_in_order(finished):
    steps, _ = finished
    plain = Dataset.range(20).shuffle(5, seed=3).map(lambda x: x * 2 + 1).batch(3)
    assert flat(2, [x for x, _ in steps]) == [int(x) for batch in plain for x in batch]
    pids = set(flat(2, [pid for _, pid in steps]))
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert ended()


def test_it_continues_on_other_replicas_and_leaves_no_process(finished):
    steps, state = finished
    n, seen = 4, []
    for x, _ in resumed(mirrored(n).experimental_distribute_dataset(make()), state):
        assert multiprocessing.active_children() != []
        seen += flat(n, [x])
        if len(seen) == 9:
            break
    assert seen == flat(2, [x for x, _ in steps[1:4]])
    assert ended()


def test_to_tell_the_spec_no_process_is_started():
    assert [s.shape for s in make().element_spec] == [(None,), (None,)]
    assert [s.shape for s in iter(make()).element_spec] == [(None,), (None,)]
    assert multiprocessing.active_children() == []


def failing(x):
    if x == 7:
        raise OSError("no 7")
    if x == 12:
        raise StopIteration
    return {"x": x, "text": b"a"}


def test_what_a_process_raises_costs_its_element_only():
    options = uni.data.Options()
    options.worker_processes = 1
    mapped = Dataset.range(20).map(failing, num_parallel_calls=2).with_options(options)
    iterator, seen, told = iter(mapped), [], []
    while True:
        try:
            seen.append(int(next(iterator)["x"]))
        except StopIteration:
            break
        except Exception as e:
            told.append(e)
    iterator.close()
    assert seen == [x for x in range(20) if x not in (7, 12)]
    assert [type(e) for e in told] == [OSError, RuntimeError]
    assert "failing" in told[0].__notes__[0]
    assert ended()


def even(x):
    if x == 3:
        raise OSError("no 3")
    return True


def gone(x):
    if x == 5:
        os._exit(3)
    return x


@pytest.mark.parametrize("how", ["source", "process"])
def test_processes_that_cannot_go_on_say_so(how):
    options = uni.data.Options()
    options.worker_processes = 1
    dataset = Dataset.range(12)
    dataset = dataset.filter(even) if how == "source" else dataset.map(gone, 2)
    dataset = dataset.map(abs, 2) if how == "source" else dataset
    iterator, seen = iter(dataset.with_options(options)), []
    with pytest.raises((OSError, RuntimeError)):
        while True:
            seen.append(int(next(iterator)))
    # Not the end: that would be a lie.
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot go on"):
            next(iterator)
    assert seen == [0, 1, 2, 3, 4][: len(seen)]
    iterator.close()
    assert ended()
