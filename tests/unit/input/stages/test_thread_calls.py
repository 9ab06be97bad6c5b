import concurrent.futures
import copy
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from unisono._src.foundation import cpu_threads
from unisono._src.input.stages import thread_calls
from unisono.data import Dataset


def names(dataset):
    """Returns the threads in which the function of a dataset ran for each element."""
    return [int(x) for x in np.ravel(list(dataset))]


def test_threads_stay_for_the_next_epoch_and_for_other_datasets():
    meet = threading.Barrier(2, timeout=60)
    before = sum(t.name.startswith("unisono-map") for t in threading.enumerate())

    def identify(x):
        meet.wait()
        return np.int64(threading.get_ident())

    dataset = Dataset.range(8).map(identify, num_parallel_calls=2)
    used = set(names(dataset))
    for _ in range(20):
        used.update(names(dataset))
        used.update(names(Dataset.range(4).map(identify, num_parallel_calls=2)))
    # An epoch may begin while the last two threads end their work.
    assert used <= {t.ident for t in threading.enumerate()}
    assert len(used) <= before + 4


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="threads have no priority")
def test_readers_of_another_priority_have_threads_of_their_own():
    def priority(x):
        return np.int64(os.getpriority(os.PRIO_PROCESS, 0))

    dataset = Dataset.range(4).map(priority, num_parallel_calls=2)
    usual = set(names(dataset))
    found = []

    def read():
        cpu_threads.yield_to_steps(3)
        found.extend(names(dataset))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(60)
    assert set(found) == ({3} if sys.platform.startswith("linux") else usual)
    assert set(names(dataset)) == usual


def test_two_readers_of_one_dataset_have_as_many_threads_as_they_ask_for():
    meet = threading.Barrier(4, timeout=60)

    def wait(x):
        meet.wait()
        return x

    dataset = Dataset.range(6).map(wait, num_parallel_calls=2)
    one, other = iter(dataset), iter(dataset)
    ahead = threading.Thread(target=lambda: found.append(list(other)))
    found: list = []
    ahead.start()
    assert [int(x) for x in one] == list(range(6))
    ahead.join(60)
    assert [int(x) for x in found[0]] == list(range(6))


def test_a_map_in_the_function_of_a_map_has_threads_of_its_own():
    def total(x):
        inner = Dataset.range(5).map(lambda y: x + y, num_parallel_calls=2)
        return np.sum([int(z) for z in inner])

    dataset = Dataset.range(4).map(total, num_parallel_calls=2)
    assert names(dataset) == [10, 15, 20, 25]


def test_closing_waits_for_calls_that_run_and_begins_no_other():
    begun, ended, go_on = [], [], threading.Event()

    def work(x):
        begun.append(int(x))
        assert x == 0 or go_on.wait(60)
        ended.append(int(x))
        return x

    iterator = iter(Dataset.range(100).map(work, num_parallel_calls=2))
    assert next(iterator) == 0
    closing = threading.Thread(target=iterator.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    go_on.set()
    closing.join(60)
    assert sorted(begun) == sorted(ended)
    assert len(begun) <= 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_is_raised_where_elements_are_read(error):
    def work(x):
        if x == 3:
            raise error("three")
        return x

    iterator = iter(Dataset.range(6).map(work, num_parallel_calls=2))
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(error, match="three"):
        next(iterator)
    assert [int(x) for x in iterator] == [4, 5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_process_that_was_forked_has_threads_of_its_own():
    program = (
        "import os, numpy as np\n"
        "from unisono.data import Dataset\n"
        "data = Dataset.range(6).map(lambda x: x + 1, num_parallel_calls=2)\n"
        "assert [int(x) for x in data] == [1, 2, 3, 4, 5, 6]\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    assert [int(x) for x in data] == [1, 2, 3, 4, 5, 6]\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == "7", found.stderr


def test_the_copy_of_a_dataset_that_was_read_has_threads_of_its_own():
    dataset = Dataset.range(6).map(lambda x: x, num_parallel_calls=2)
    assert names(dataset) == list(range(6))
    assert names(copy.deepcopy(dataset)) == list(range(6))


class Refused(concurrent.futures.ThreadPoolExecutor):
    """A pool that starts no thread at first, as if the system had no more."""

    refuses = True

    def _adjust_thread_count(self):
        if self.refuses:
            raise RuntimeError("can't start new thread")
        super()._adjust_thread_count()


def test_a_thread_that_cannot_be_started_loses_no_call(monkeypatch):
    calls = thread_calls.ThreadCalls(lambda element, _: element + 1, 1)
    first, second = (thread_calls.Call(x, None) for x in (1, 2))
    pool = Refused()
    monkeypatch.setattr(thread_calls, "_find_pool", lambda: pool)
    with pytest.raises(RuntimeError, match="new thread"):
        calls.add(first)
    # The pool still has what it could not start, and does it with the next thread.
    pool.refuses = False
    calls.begin()
    assert first.outcome().result() == 2
    calls.add(second)
    assert [first.outcome().result(), second.outcome().result()] == [2, 3]
    pool.shutdown()
    assert not calls._running


def test_a_reader_that_got_no_thread_reads_on_when_there_is_one(monkeypatch):
    iterator = iter(Dataset.range(1).map(lambda x: x + 1, num_parallel_calls=2))
    with monkeypatch.context() as patch:
        patch.setattr(thread_calls, "_find_pool", Refused)
        with pytest.raises(RuntimeError, match="new thread"):
            next(iterator)
    assert [int(x) for x in iterator] == [1]
