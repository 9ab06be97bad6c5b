"""The memory of batches: read in place, used again, and never under anyone's feet."""

import gc
import threading

import jax
import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset
from unisono._src.input.plan import host_buffers
from unisono._src.values import collectives

ROWS, WIDTH = 64, 512


def table():
    return np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)


def batches(n=2, mapped=False):
    dataset = Dataset.from_tensor_slices(table()).shuffle(ROWS, seed=1).batch(16)
    if mapped:
        dataset = dataset.map(lambda x: x + 1)
    return mirrored(n).experimental_distribute_dataset(dataset.repeat())


def address(x):
    return x.unsafe_buffer_pointer()


@pytest.mark.feature("H01")
@pytest.mark.parametrize("mapped", [False, True], ids=["rows", "mapped"])
def test_batches_that_are_kept_are_never_written_to(mapped):
    iterator = iter(batches(mapped=mapped))
    kept = [next(iterator) for _ in range(10 * ROWS // 16)]
    iterator.close()
    parts = [np.asarray(part, np.float64) for batch in kept for part in batch.values]
    wanted = (table() + mapped).sum(dtype=np.float64)
    assert sum(part.sum() for part in parts) == 10 * wanted


@pytest.mark.feature("H01")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_steps_that_are_not_awaited_read_the_batch_they_were_given(n):
    strategy = mirrored(n)

    @uni.function
    def step(x):
        def replica(x):
            # Long enough that the next batches are made meanwhile.
            y = x @ x.T
            return x.sum() + 0 * (y @ y).sum()

        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    iterator = iter(batches(n))
    told = [step(next(iterator)) for _ in range(80)]
    per_epoch = ROWS // 16
    epochs = [
        sum(float(t) for t in told[i : i + per_epoch]) for i in range(0, 80, per_epoch)
    ]
    np.testing.assert_allclose(epochs, table().sum(dtype=np.float64), rtol=1e-5)


@pytest.mark.feature("H01")
def test_elements_on_the_host_that_are_kept_are_never_written_to():
    dataset = Dataset.from_tensor_slices(table()).shuffle(ROWS, seed=1).batch(16)
    kept = list(dataset.repeat(20))
    total = sum(float(k.sum(dtype=np.float64)) for k in kept)
    assert total == 20 * table().sum(dtype=np.float64)


@pytest.mark.feature("H01")
def test_memory_is_used_again_when_no_one_has_the_batch():
    iterator = iter(batches())
    seen = {address(next(iterator).values[0]) for _ in range(200)}
    assert len(seen) < 50


def test_a_view_keeps_the_memory():
    memory = host_buffers.Buffers()
    whole = memory.allocate((64, 512), np.float32)
    whole[:] = 1
    row = whole[3]
    del whole
    gc.collect()
    other = memory.allocate((64, 512), np.float32)
    other[:] = 2
    assert row.tolist() == [1] * 512


def test_arrays_begin_where_cpu_devices_read_them_in_place():
    memory = host_buffers.Buffers()
    for _ in range(5):
        array = memory.allocate((3, 5, 4096), np.int16)
        array[:] = 7
        assert array.ctypes.data % 64 == 0 and array.flags.c_contiguous
        assert address(jax.device_put(array)) == array.ctypes.data


def test_memory_comes_back_from_every_thread():
    memory = host_buffers.Buffers()
    wrong = []

    def work(number):
        for _ in range(300):
            array = memory.allocate((5000,), np.int32)
            array[:] = number
            if (array != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.feature("H01")
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("size", [16, 7, 1], ids=str)
def test_a_jax_without_the_short_way_gives_the_same(monkeypatch, n, size):
    def seen():
        dataset = Dataset.from_tensor_slices((table(), np.arange(ROWS)))
        distributed = mirrored(n).experimental_distribute_dataset(dataset.batch(size))
        local = mirrored(n).experimental_local_results
        return [
            [(np.asarray(a), a.dtype, a.shape) for x in batch for a in local(x)]
            for batch in distributed
        ]

    quick = seen()
    monkeypatch.setattr(collectives, "_has_put", False)
    for batch, other in zip(quick, seen(), strict=True):
        for (a, kind, shape), (b, *same) in zip(batch, other, strict=True):
            assert [kind, shape] == same
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("in_file", [True, False])
def test_a_cache_behind_a_shuffle_is_stopped_twice(in_file, tmp_path):
    def build(place):
        shuffled = uni.data.Dataset.range(20).map(abs).shuffle(20)
        return shuffled.cache(str(tmp_path / place) if in_file else "")

    first = iter(build("a"))
    for _ in range(3):
        next(first)
    second = iter(build("b"))
    second.set_state(first.get_state())
    for _ in range(4):
        assert next(second) == next(first)
    third = iter(build("c"))
    third.set_state(second.get_state())
    assert [int(x) for x in third] == [int(x) for x in first]


def test_a_file_of_a_resumed_pass_has_all_elements_in_its_order(tmp_path):
    def build(place):
        shuffled = uni.data.Dataset.range(20).map(abs).shuffle(20)
        return shuffled.cache(str(tmp_path / place))

    first = iter(build("a"))
    begin = [int(next(first)) for _ in range(3)]
    dataset = build("b")
    second = iter(dataset)
    second.set_state(first.get_state())
    whole = begin + [int(x) for x in second]
    assert [int(x) for x in dataset] == whole
