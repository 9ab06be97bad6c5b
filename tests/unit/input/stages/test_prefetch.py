"""Reading ahead in a thread: several readers, refused positions, the program's end."""

import collections
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset, flat, numbers, resumed, saved
from unisono._src.input.distribution import placement, steps
from unisono._src.input.plan import cursors
from unisono._src.input.stages import prefetch

IO = uni.distribute.InputOptions


def slow(x):
    time.sleep(0.002)
    return x


def distributed(dataset, n=1, **options):
    return mirrored(n).experimental_distribute_dataset(dataset, IO(**options))


@pytest.mark.feature("H02")
def test_several_threads_share_an_iterator_and_all_come_to_its_end():
    iterator = iter(distributed(Dataset.range(80).batch(2).map(slow)))
    seen = []

    def consume():
        for x in iterator:
            seen.extend(np.asarray(x).tolist())

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(seen) == list(range(80))
    iterator.close()


@pytest.mark.feature("H02")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_length_of_a_distributed_dataset_is_its_number_of_steps(n):
    for dataset in (Dataset.range(18).batch(4), Dataset.range(0).batch(4)):
        made = distributed(dataset, n)
        assert len(made) == len(list(made)) == made.cardinality
        assert made
    with pytest.raises(TypeError, match="infinite"):
        len(distributed(Dataset.range(8).batch(4).repeat(), n))
    with pytest.raises(TypeError, match="length is unknown"):
        len(distributed(Dataset.range(8).filter(lambda x: x > 1).batch(4), n))
    with pytest.raises(TypeError, match="length is unknown"):
        len(mirrored(n).distribute_datasets_from_function(lambda c: Dataset.range(8)))


@pytest.mark.feature("H02")
def test_a_closed_iterator_is_at_its_end():
    dataset = Dataset.range(8).batch(2)
    for made in (dataset, distributed(dataset), distributed(dataset.map(slow))):
        iterator = iter(made)
        next(iterator)
        iterator.close()
        assert next(iterator, None) is None


@pytest.mark.feature("H01")
@pytest.mark.parametrize("n", [1, 2])
def test_batches_are_transfers_that_someone_asked_for(n):
    with jax.transfer_guard("disallow"):
        steps = list(distributed(Dataset.range(16).batch(4), n))
    assert flat(n, steps) == list(range(16))


@pytest.mark.parametrize("function", [None, slow], ids=["no thread", "thread"])
def test_an_iterator_goes_on_after_a_position_that_was_refused(function):
    def made(size):
        dataset = Dataset.range(size).shuffle(size, seed=1).batch(4)
        return distributed(dataset.map(function) if function else dataset)

    other, whole = iter(made(16)), flat(1, made(20))
    iterator = iter(made(20))
    seen = [next(iterator), next(iterator)]
    next(other)
    with pytest.raises(ValueError, match="16 elements, and this one has 20"):
        iterator.set_state(saved(other))
    assert flat(1, [*seen, *iterator]) == whole
    plain = iter(Dataset.range(20).shuffle(20, seed=1))
    first = int(next(plain))
    with pytest.raises(ValueError, match="is that of a"):
        plain.set_state(saved(other))
    with pytest.raises(ValueError, match="made in another way"):
        position = {"source": {}, "pass": 0, "index": 0}
        plain.set_state({**plain.get_state(), "position": position})
    assert sorted([first, *map(int, plain)]) == list(range(20))
    other.close()
    iterator.close()


def test_a_position_from_more_data_is_refused():
    iterator = iter(Dataset.range(100).shuffle(30, seed=1).batch(10))
    next(iterator)
    with pytest.raises(ValueError, match="100 elements, and this one has 60"):
        resumed(Dataset.range(60).shuffle(30, seed=1).batch(10), saved(iterator))


@pytest.mark.feature("H19")
@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_position_does_not_depend_on_how_far_was_read_ahead(before, after):
    dataset = Dataset.range(24).batch(4).map(slow).prefetch(3)
    iterator = iter(distributed(dataset, experimental_per_replica_buffer_size=before))
    next(iterator)
    other = distributed(dataset, experimental_per_replica_buffer_size=after)
    rest = resumed(other, saved(iterator))
    assert flat(1, rest) == list(range(4, 24))
    iterator.close()
    rest.close()


@pytest.mark.parametrize("n", [1, 2])
def test_arrays_without_columns_and_of_foreign_order(n):
    arrays = (np.zeros((8, 0)), np.arange(8, dtype=">i4"))
    for x, y in distributed(Dataset.from_tensor_slices(arrays).batch(4), n):
        local = mirrored(n).experimental_local_results
        assert {v.shape for v in local(x)} == {(4 // n, 0)}
        assert all(v.dtype == np.int32 for v in local(y))


def test_an_exception_that_no_one_has_seen_is_not_passed_over():
    def fails(x):
        if x[0] == 4:
            raise OSError("no 4")
        return x

    def made():
        return distributed(Dataset.range(8).batch(2).map(fails))

    iterator = iter(made())
    seen = flat(1, [next(iterator)])
    time.sleep(0.1)
    # The thread has met it by now.
    other = resumed(made(), saved(iterator))
    iterator.close()
    seen += flat(1, [next(other)])
    with pytest.raises(OSError, match="no 4"):
        next(other)
    after = resumed(made(), saved(other))
    other.close()
    assert seen + flat(1, after) == [0, 1, 2, 3, 6, 7]
    after.close()


def test_an_interrupt_that_takes_an_exception_away_ends_nothing(monkeypatch):
    def fails(x):
        if x[0] == 2:
            raise OSError("no 2")
        return x

    iterator = iter(distributed(Dataset.range(8).batch(2).map(fails)))
    seen = flat(1, [next(iterator)])
    taken = prefetch.ReadAhead._wait

    def interrupted(self, shared):
        assert isinstance(taken(self, shared)[0], prefetch._ReadFailure)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prefetch.ReadAhead, "_wait", interrupted)
        next(iterator)
    assert seen + flat(1, iterator) == [0, 1, 4, 5, 6, 7]
    iterator.close()


@pytest.mark.parametrize("buffer", [1, 3, 20])
@pytest.mark.parametrize("stop", range(0, 12, 2))
def test_a_shuffle_of_what_raises_goes_on(buffer, stop):
    def fails(x):
        if x == 5:
            raise OSError("no 5")
        return x

    def made():
        return Dataset.range(12).map(fails).shuffle(buffer, seed=2)

    def next_of(iterator):
        try:
            return int(next(iterator, -1))
        except OSError:
            return None

    iterator = iter(made())
    seen = [next_of(iterator) for _ in range(stop)]
    other = resumed(made(), saved(iterator))
    while (one := next_of(other)) != -1:
        seen.append(one)
    assert None in seen
    assert sorted(x for x in seen if x is not None) == [*range(5), *range(6, 12)]


PROGRAM = """
import jax.numpy as jnp, unisono as uni
strategy = uni.distribute.OneDeviceStrategy("CPU:0")
dataset = uni.data.Dataset.range(100_000).batch(8).map(lambda x: jnp.asarray(x) + 1)
options = uni.distribute.InputOptions(experimental_per_replica_buffer_size=500)
iterator = iter(strategy.experimental_distribute_dataset(dataset, options))
for _ in range(20):
    next(iterator)
print("done")
"""


def test_a_program_may_end_while_the_thread_reads():
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
        )
        assert (ended.returncode, ended.stdout.strip()) == (0, "done"), ended.stderr
        assert "Exception ignored" not in ended.stderr


def test_numbers_are_plain_in_every_position():
    saved(iter(Dataset.range(9).shuffle(9, seed=1).take(8).shuffle(3, seed=2)))
    iterator = iter(Dataset.range(9).shuffle(9, seed=1).shuffle(3, seed=2))
    next(iterator)
    assert (
        len(
            numbers(
                resumed(
                    Dataset.range(9).shuffle(9, seed=1).shuffle(3, seed=2),
                    saved(iterator),
                )
            )
        )
        == 8
    )


def test_an_element_that_an_interrupt_lost_comes_again_after_resuming(monkeypatch):
    dataset = Dataset.range(12).batch(2).map(slow)
    iterator = iter(distributed(dataset))
    first = flat(1, [next(iterator)])
    taken = prefetch.ReadAhead._wait

    def interrupted(self, shared):
        taken(self, shared)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prefetch.ReadAhead, "_wait", interrupted)
        next(iterator)
    rest = resumed(distributed(dataset), saved(iterator))
    assert first + flat(1, rest) == list(range(12))
    # Who goes on is one element further, and so is the position.
    later = flat(1, [next(iterator)])
    last = resumed(distributed(dataset), saved(iterator))
    assert later + flat(1, last) == list(range(4, 12))
    for opened in (iterator, rest, last):
        opened.close()


class NoPosition:
    """Steps whose position cannot be asked for."""

    def __init__(self):
        self.left = [np.arange(4) + 4 * i for i in range(3)]

    def read(self, count):
        found, self.left = self.left[:count], self.left[count:]
        return found

    def get_state(self):
        raise NotImplementedError("not here")

    def units(self, found):
        return len(found)

    def cancel(self):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("size", [0, 2])
def test_what_tells_no_position_can_be_read(size):
    reader = prefetch.ReadAhead(NoPosition(), size, "stream")
    assert reader.read(2)[1].tolist() == [4, 5, 6, 7]
    with pytest.raises((NotImplementedError, RuntimeError)):
        reader.get_state()
    assert len(reader.read(2)) == 1
    reader.close()


def test_a_thread_that_died_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(prefetch._SharedQueue, "forget", lambda self: 1 / 0)
    reader = prefetch.ReadAhead(NoPosition(), 2, "stream")
    assert len(reader.read(1)) == 1
    with pytest.raises(ZeroDivisionError):
        reader.read(1)
    with pytest.raises(RuntimeError, match="thread that reads the stream has ended"):
        reader.read(1)
    reader.close()


class Numbers(cursors.Cursor):
    """The numbers from 0; from `stop` on they come only when they are let through."""

    def __init__(self, stop=1000, end=1000):
        self.made, self.stop, self.end = 0, stop, end
        self.go = threading.Event()

    def read(self, count):
        if self.made >= self.stop and not self.go.wait(20):
            raise TimeoutError
        if self.made >= self.end:
            return []
        self.made += 1
        return [self.made - 1]

    def get_state(self):
        return {"at": self.made}

    def set_state(self, state):
        self.made = state["at"]

    def close(self):
        pass


class Far(prefetch.Destination):
    """Where `allowed` elements may be under way; those in `there` have arrived."""

    def __init__(self, allowed):
        self.allowed, self.there, self.asked = allowed, set(), 0

    def has_arrived(self, element):
        self.asked += 1
        return element in self.there

    def room(self, element):
        return self.allowed


def reading(source, destination):
    return prefetch.ReadAhead(source, 1, "numbers", destination=destination)


@pytest.mark.feature("H02")
def test_an_element_that_travels_is_given_when_enough_others_follow_it():
    source = Numbers()
    reader = reading(source, Far(3))
    assert list(reader.read(1)) == [0]
    assert source.made >= 4
    assert list(reader.read(5)) == [1, 2, 3, 4, 5]
    reader.close()


@pytest.mark.feature("H02")
def test_an_element_that_has_arrived_waits_for_no_other():
    source, far = Numbers(stop=1), Far(3)
    reader = reading(source, far)
    threading.Timer(0.2, far.there.add, [0]).start()
    begin = time.perf_counter()
    assert list(reader.read(1)) == [0]
    assert 0.1 < time.perf_counter() - begin < 10
    source.go.set()
    reader.close()


@pytest.mark.feature("H02")
def test_the_last_elements_wait_for_none_that_never_come():
    reader = reading(Numbers(end=2), Far(8))
    assert list(reader.read(5)) == [0, 1]
    assert list(reader.read(1)) == []
    reader.close()


@pytest.mark.feature("H02")
def test_an_interrupt_while_an_element_travels_loses_nothing():
    class Interrupting(Far):
        def has_arrived(self, element):
            if not self.asked:
                self.asked = 1
                raise KeyboardInterrupt
            return True

    source = Numbers(stop=1)
    reader = reading(source, Interrupting(3))
    with pytest.raises(KeyboardInterrupt):
        reader.read(1)
    assert reader.get_state()["trail"]["index"] == 0
    source.go.set()
    assert list(reader.read(3)) == [0, 1, 2]
    assert reader.get_state()["trail"]["index"] == 3
    reader.close()


@pytest.mark.feature("H02")
def test_an_element_that_another_thread_took_first_is_not_waited_for():
    class TakenFirst(collections.deque):
        """Has an element until it is asked for it, as if another thread took it."""

        def __len__(self):
            return 1

    reader = reading(Numbers(end=2), Far(0))
    assert list(reader.read(1)) == [0]
    reader._shared.taken = TakenFirst()
    assert list(reader.read(1)) == [1]
    reader.close()


@pytest.mark.feature("H02")
def test_steps_for_accelerators_are_counted_by_their_bytes():
    iterator = iter(distributed(Dataset.range(1 << 20).batch(1 << 18), 2))
    there = placement.Accelerators(iterator._dataset._topology)
    step = iterator._ahead.read(1)[0]
    assert there.has_arrived(step)
    assert there.room(step) == 8  # 2 MB of int32 in all, and one for each replica
    large = steps.Step(jax.numpy.zeros((2, 3 << 22)), None, 1)
    assert there.room(large) == 2  # 48 MB for each
