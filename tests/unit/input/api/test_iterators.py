"""Ends and accidents: what is given back, and what is said when."""

import gc
import multiprocessing
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.threads import is_over
from tests.unit.input.pipelines import COUNTS, Dataset, flat, parts, resumed, saved
from unisono._src.input.stages import prefetch

IO = uni.distribute.InputOptions
PER_REPLICA = uni.distribute.InputReplicationMode.PER_REPLICA
Spec = uni.TensorSpec


def our_threads():
    """The threads of pipelines that still work, after a while."""
    found = [t for t in threading.enumerate() if t.name.startswith("unisono-")]
    return [t.name for t in found if not is_over(t, 0.5)]


def slowly(x):
    time.sleep(0.0005)
    return x


def threaded():
    """A pipeline with threads at every place where there can be some."""
    return (
        Dataset.range(400)
        .prefetch(2)
        .map(slowly, num_parallel_calls=2)
        .prefetch(3)
        .map(slowly, num_parallel_calls=uni.data.AUTOTUNE)
        .batch(4)
        .prefetch(2)
    )


@pytest.fixture
def no_collector():
    """Dropped things must go without the help of the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


WAYS = {
    "dataset": lambda: threaded(),
    "distributed": lambda: mirrored(2).experimental_distribute_dataset(threaded()),
    "from a function": lambda: mirrored(2).distribute_datasets_from_function(
        lambda context: threaded()
    ),
    "per replica": lambda: mirrored(2).distribute_datasets_from_function(
        lambda context: threaded(), IO(experimental_replication_mode=PER_REPLICA)
    ),
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_no_thread_works_on(make):
    dataset = make()
    for _ in dataset:
        break
    assert our_threads() == []

    try:
        for _ in dataset:
            raise KeyError
    except KeyError:
        pass
    assert our_threads() == []

    iterator = iter(dataset)
    next(iterator)
    assert threading.active_count() > 1
    iterator.close()
    assert our_threads() == []

    iterator = iter(dataset)
    next(iterator)
    iterator.set_state(saved(iterator))
    next(iterator)
    del iterator
    assert our_threads() == []
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("n", COUNTS)
def test_a_generator_that_raises_gives_what_came_before_it(n):
    def generator():
        yield from np.arange(12).reshape(3, 4)
        raise OSError("disk on fire")

    def make():
        dataset = Dataset.from_generator(
            generator, output_signature=Spec((4,), np.int64)
        )
        return mirrored(n).experimental_distribute_dataset(dataset)

    iterator, seen = iter(make()), []
    with pytest.raises(OSError, match="disk on fire"):
        for step in iterator:
            seen += flat(n, [step])
    assert seen == list(range(12))
    # A generator that has raised is over; nothing hangs.
    assert next(iterator, None) is None
    del iterator, step
    assert our_threads() == []


def test_a_function_that_raises_once_stops_nothing_else():
    def fails(x):
        if x == 3:
            raise OSError("no 3")
        return x

    for parallel in (None, 3, uni.data.AUTOTUNE):
        dataset = Dataset.range(6).map(fails, num_parallel_calls=parallel)
        for made in (dataset, dataset.prefetch(2)):
            iterator = iter(made)
            assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
            with pytest.raises(OSError, match="no 3"):
                next(iterator)
            assert [int(x) for x in iterator] == [4, 5]
    assert [int(x) for x in Dataset.range(6).map(fails).ignore_errors()] == [
        *(0, 1, 2, 4, 5)
    ]


def test_a_shard_does_not_wait_for_what_it_does_not_want():
    def generator():
        yield from np.arange(5)
        raise OSError

    dataset = Dataset.from_generator(generator, output_signature=Spec((), np.int64))
    iterator = iter(dataset.shard(2, 0))
    assert [int(next(iterator)) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(OSError):
        next(iterator)


@pytest.mark.feature("H02")
@pytest.mark.parametrize("n", COUNTS)
def test_the_end(n):
    s = mirrored(n)
    for dataset in (
        s.experimental_distribute_dataset(Dataset.range(2).batch(2)),
        s.distribute_datasets_from_function(lambda c: Dataset.range(2).batch(2)),
        Dataset.range(2).batch(2),
    ):
        iterator = iter(dataset)
        next(iterator)
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iterator)
            with pytest.raises(uni.errors.OutOfRangeError, match="End of sequence"):
                iterator.get_next()
            optional = iterator.get_next_as_optional()
            assert not optional.has_value()
            with pytest.raises(uni.errors.InvalidArgumentError, match="has_value"):
                optional.get_value()
        rest = resumed(dataset, saved(iterator))
        assert list(rest) == []


# Input that cannot be distributed.


@pytest.mark.feature("H27")
@pytest.mark.parametrize("n", COUNTS[1:])
def test_a_dataset_that_was_never_batched_is_refused_at_once(n):
    s = mirrored(n)
    pairs = Dataset.from_tensor_slices({"x": np.zeros((4, 2)), "y": np.arange(4)})
    with pytest.raises(IndexError, match=rf"{n} replicas.*batch\(size\)"):
        s.experimental_distribute_dataset(Dataset.range(4))
    with pytest.raises(IndexError, match=r"component \['y'\] is a single value"):
        s.experimental_distribute_dataset(pairs.repeat().prefetch(1))
    mapped = s.experimental_distribute_dataset(Dataset.range(4).map(lambda x: x))
    with pytest.raises(ValueError, match=r"single value.*batch\(size\)"):
        list(mapped)


@pytest.mark.parametrize("n", COUNTS[1:])
def test_arrays_of_a_batch_that_disagree_are_refused_at_their_step(n):
    good = {"x": np.zeros(4), "y": np.zeros(4)}
    bad = {"x": np.zeros(4), "y": np.zeros(3)}
    iterator = iter(mirrored(n).experimental_distribute_dataset([good, bad]))
    next(iterator)
    with pytest.raises(
        uni.errors.InvalidArgumentError, match=r"\['x'\]: 4, \['y'\]: 3"
    ):
        next(iterator)


@pytest.mark.feature("I01")
@pytest.mark.parametrize("wrong", [None, 3, 2.5])
def test_a_dataset_fn_must_return_a_dataset(wrong):
    with pytest.raises(TypeError, match=f"received {type(wrong).__name__}"):
        mirrored(2).distribute_datasets_from_function(lambda context: wrong)


def test_what_is_distributed_already_is_refused():
    s = mirrored(2)
    once = s.experimental_distribute_dataset(Dataset.range(4).batch(2))
    with pytest.raises(AttributeError, match="distributed already"):
        s.experimental_distribute_dataset(once)
    with pytest.raises(TypeError, match="not distributed"):
        s.distribute_datasets_from_function(lambda context: once)


# Options of distributing.


@pytest.mark.feature("H19")
@pytest.mark.parametrize("n", COUNTS)
def test_values_may_stay_on_the_host(n):
    s = mirrored(n)
    options = IO(experimental_fetch_to_device=False)
    dataset = Dataset.range(6).batch(4)
    for made in (
        s.experimental_distribute_dataset(dataset, options),
        s.distribute_datasets_from_function(lambda c: dataset, options),
    ):
        steps = list(made)
        for step in steps:
            for x in s.experimental_local_results(step):
                assert isinstance(x, np.ndarray)
                assert x.dtype == np.int64
        assert flat(n, steps) == [0, 1, 2, 3, 4, 5]


@pytest.mark.feature("H19")
def test_so_many_steps_are_placed_ahead_as_asked():
    made = []

    def make(x):
        made.append(1)
        return x

    for size in (0, 1, 5):
        made.clear()
        options = IO(experimental_per_replica_buffer_size=size)
        iterator = iter(
            mirrored(2).experimental_distribute_dataset(
                Dataset.range(40).batch(2).map(make), options
            )
        )
        next(iterator)
        deadline = time.monotonic() + 5
        while len(made) < 2 * size + 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        # One given, `size` on the devices, and as many that wait for them.
        assert len(made) == 2 * size + 1
        iterator.close()


# In compiled functions.


@pytest.mark.feature("H24")
@pytest.mark.parametrize("kind", [np.int64, np.float32])
@pytest.mark.parametrize("n", COUNTS)
def test_a_signature_of_the_dataset_fits_all_its_batches(n, kind):
    s, traces = mirrored(n), []
    dataset = s.experimental_distribute_dataset(
        Dataset.range(21, output_type=kind).batch(8)
    )

    @uni.function(input_signature=[dataset.element_spec])
    def step(x):
        traces.append(1)
        return s.reduce("SUM", s.run(jnp.sum, args=(x,)), axis=None)

    for _ in range(2):
        assert [float(step(x)) for x in dataset] == [28.0, 92.0, 90.0]
    # XLA's programs have fixed shapes: one for full batches, one for the last.
    assert len(traces) == 2


@pytest.mark.feature("H02")
@pytest.mark.parametrize("n", COUNTS)
def test_a_whole_epoch_and_single_steps_inside_a_function(n):
    s = mirrored(n)
    dataset = s.experimental_distribute_dataset(
        Dataset.range(10).map(lambda x: x).batch(4)
    )

    def total(x):
        return s.reduce("SUM", s.run(jnp.sum, args=(x,)), axis=None)

    @uni.function
    def epoch(data):
        return sum(total(x) for x in data)

    @uni.function
    def step(iterator):
        return total(next(iterator))

    assert [int(epoch(dataset)) for _ in range(2)] == [45, 45]
    iterator = iter(dataset)
    assert int(step(iterator)) == 6
    state = saved(iterator)
    assert [int(step(iterator)) for _ in range(2)] == [22, 17]
    with pytest.raises(StopIteration):
        step(iterator)
    assert int(step(resumed(dataset, state))) == 22


def test_another_strategy_may_not_iterate():
    dataset = mirrored(2).experimental_distribute_dataset(Dataset.range(4).batch(2))
    with mirrored(4).scope(), pytest.raises(RuntimeError, match="Mixing"):
        iter(dataset)
    with mirrored(2).scope():
        assert parts(2, dataset) == [[[0], [1]], [[2], [3]]]


def test_a_loader_that_is_busy_is_closed_when_it_comes_back(monkeypatch):
    monkeypatch.setattr(prefetch, "_GOODBYE", 0.05)
    closed = []

    def batches():
        try:
            yield np.arange(4)
            time.sleep(0.5)
            yield np.arange(4)
            yield np.arange(4)
        finally:
            closed.append(True)

    iterator = iter(mirrored(2).experimental_distribute_dataset(batches()))
    next(iterator)
    time.sleep(0.05)
    iterator.close()
    assert list(iterator) == [] and not closed
    for _ in range(100):
        if closed:
            break
        time.sleep(0.02)
    assert closed == [True]
