"""Datasets that are saved and loaded, and elements kept in files."""

import collections
import os
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset, flat, resumed, saved

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

Point = collections.namedtuple("Point", "x y")


def points(count=7):
    return Dataset.from_tensor_slices(
        Point(np.arange(count), {"name": [f"ö{i}" * i for i in range(count)]})
    )


def same(a, b):
    """Whether two elements have the same structure, types and values."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return type(a).__name__ == type(b).__name__ and all(map(same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()


TYPES = st.sampled_from(
    [np.bool_, np.uint8, np.int64, np.float16, ml_dtypes.bfloat16, np.complex64]
)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
LEAVES = st.builds(lambda t, s: np.ones(s, t), TYPES, SHAPES) | st.text(max_size=3)
STRUCTURES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, min_size=1, max_size=3)
        | st.tuples(inner, inner).map(lambda p: Point(*p))
    ),
    max_leaves=5,
)


@hypothesis.given(STRUCTURES, st.sampled_from([None, "GZIP"]))
def test_every_element_comes_back_as_it_was(tmp_path_factory, element, compression):
    path = tmp_path_factory.mktemp("saved")
    dataset = Dataset.from_tensors(element).repeat(2)
    dataset.save(path, compression)
    loaded = Dataset.load(path)
    first, other = loaded.take(1), dataset.take(1)
    assert same(first.get_single_element(), other.get_single_element())
    assert str(loaded.element_spec) == str(dataset.element_spec)
    assert len(loaded) == len(list(loaded)) == 2


def test_shards_take_turns_or_are_read_by_a_function(tmp_path):
    points().save(tmp_path, shard_func=lambda p: p.x // 4)

    def numbers(reader=None):
        return [int(p.x) for p in Dataset.load(tmp_path, reader_func=reader)]

    assert numbers() == [0, 4, 1, 5, 2, 6, 3]
    assert len(Dataset.load(tmp_path)) == 7
    assert numbers(lambda shards: shards.flat_map(lambda d: d)) == list(range(7))
    assert numbers(lambda shards: shards.skip(1).flat_map(lambda d: d)) == [4, 5, 6]
    with pytest.raises(TypeError, match="`reader_func` argument must return"):
        numbers(lambda shards: 3)


def test_saving_again_replaces_the_dataset_when_it_is_whole(tmp_path):
    Dataset.range(5).save(tmp_path, shard_func=lambda x: x % 2)

    def fails(x):
        if x == 3:
            raise OSError("no 3")
        return x

    with pytest.raises(OSError, match="no 3"):
        Dataset.range(9).map(fails).save(tmp_path)
    assert sorted(map(int, Dataset.load(tmp_path))) == list(range(5))
    assert len(os.listdir(tmp_path)) == 3
    Dataset.range(2).save(tmp_path)
    assert list(map(int, Dataset.load(tmp_path))) == [0, 1]
    assert len(os.listdir(tmp_path)) == 2


def test_what_does_not_fit_is_refused(tmp_path):
    points().save(tmp_path / "a", "GZIP")
    with pytest.raises(uni.errors.NotFoundError, match="No dataset was saved at"):
        Dataset.load(tmp_path)
    with pytest.raises(uni.errors.InvalidArgumentError, match="do not fit the given"):
        Dataset.load(tmp_path / "a", uni.TensorSpec((), "int64"))
    with pytest.raises(ValueError, match="was saved with compression='GZIP'"):
        Dataset.load(tmp_path / "a", compression="NONE")
    with pytest.raises(ValueError, match="uncompressed or with GZIP"):
        points().save(tmp_path / "b", "SNAPPY")
    with pytest.raises(ValueError, match="must return a single integer"):
        points().save(tmp_path / "b", shard_func=lambda p: "a")
    with pytest.raises(TypeError, match="Only arrays can be written"):
        Dataset.range(4).window(2).save(tmp_path / "b")
    with pytest.raises(ValueError, match="checkpoint_args"):
        points().save(tmp_path / "b", checkpoint_args={})


def test_a_given_spec_may_leave_sizes_open(tmp_path):
    Dataset.range(4).batch(2, drop_remainder=True).save(tmp_path)
    spec = uni.TensorSpec((None,), np.int64)
    assert Dataset.load(tmp_path, spec).element_spec == spec
    assert Dataset.load(tmp_path).element_spec == uni.TensorSpec((2,), np.int64)


def test_an_empty_dataset_keeps_its_spec(tmp_path):
    Dataset.range(0).save(tmp_path)
    loaded = Dataset.load(tmp_path)
    assert list(loaded) == []
    assert loaded.element_spec == uni.TensorSpec((), np.int64)


def test_a_dataset_that_is_still_written_is_waited_for(tmp_path):
    def later():
        time.sleep(0.2)
        Dataset.range(3).save(tmp_path)

    thread = threading.Thread(target=later)
    thread.start()
    assert len(Dataset.load(tmp_path, wait=True)) == 3
    thread.join()


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_file_that_was_cut_is_told(tmp_path, compression):
    points(20).save(tmp_path, compression)
    (name,) = tmp_path.glob("*.elements")
    whole = name.read_bytes()
    for size in range(0, len(whole), 7):
        name.write_bytes(whole[:size])
        with pytest.raises(uni.errors.DataLossError, match="elements"):
            list(Dataset.load(tmp_path))


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("stop", range(5))
def test_reading_goes_on_after_a_stop(tmp_path, compression, stop):
    Dataset.range(18).save(tmp_path, compression, shard_func=lambda x: x % 2)

    def made(n):
        dataset = Dataset.load(tmp_path).shuffle(3, seed=1).batch(4)
        return mirrored(n).experimental_distribute_dataset(dataset)

    whole = flat(1, made(1))
    iterator = iter(made(2))
    seen = flat(2, [next(iterator) for _ in range(stop)])
    rest = resumed(made(4), saved(iterator))
    assert seen + flat(4, rest) == whole
    assert sorted(whole) == list(range(18))
    iterator.close()


def test_a_file_cache_keeps_named_tuples_and_missing_parts(tmp_path):
    dataset = points().map(lambda p: (p, None, {"z": p.x})).cache(tmp_path / "c")
    first, again = list(dataset), list(dataset)
    assert (tmp_path / "c.cache").exists()
    assert isinstance(again[0][0], Point)
    for a, b in zip(first, again, strict=True):
        assert same(a[0], b[0]) and b[1] is None and same(a[2], b[2])


def test_a_file_cache_is_sought_not_read_again(tmp_path):
    dataset = Dataset.range(50).batch(2).cache(tmp_path / "c")
    whole = [x.tolist() for x in dataset]
    iterator = iter(dataset)
    for _ in range(20):
        next(iterator)
    assert [x.tolist() for x in resumed(dataset, saved(iterator))] == whole[20:]


def test_sizes_that_vary_are_open_in_what_was_saved(tmp_path):
    dataset = Dataset.range(1, 5).map(lambda n: (np.arange(n), np.zeros((2, 3))))
    dataset.save(tmp_path)
    loaded = Dataset.load(tmp_path)
    assert [s.shape for s in loaded.element_spec] == [(None,), (2, 3)]
    (batch,) = loaded.padded_batch(4)
    assert batch[0].shape == (4, 4)


def test_a_full_disk_leaves_nothing_and_is_told(tmp_path, monkeypatch):
    Dataset.range(3).save(tmp_path)

    def full(self, element):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        "unisono._src.input.stages.element_files.ElementWriter.write", full
    )
    with pytest.raises(OSError, match=r"Cannot save a dataset at .*No space left"):
        Dataset.range(9).save(tmp_path)
    assert len(os.listdir(tmp_path)) == 2
    assert len(Dataset.load(tmp_path)) == 3


def test_files_of_runs_that_were_killed_go_with_time(tmp_path):
    for name in ("aa-00000.elements", "aa.partial", "bb-00000.elements", "notes.txt"):
        (tmp_path / name).touch()
    for name in ("aa-00000.elements", "aa.partial", "notes.txt"):
        os.utime(tmp_path / name, (0, 0))
    Dataset.range(3).save(tmp_path)
    left = {p.name for p in tmp_path.iterdir()}
    assert {"bb-00000.elements", "notes.txt", "dataset.json"} < left
    assert len(left) == 4


def test_a_dataset_that_was_replaced_is_to_be_loaded_again(tmp_path):
    Dataset.range(3).save(tmp_path)
    loaded = Dataset.load(tmp_path)
    Dataset.range(4).save(tmp_path)
    with pytest.raises(uni.errors.NotFoundError, match="Load it again"):
        list(loaded)


def test_places_where_nothing_can_be_saved(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"Cannot save a dataset at .*file"):
        Dataset.range(3).save(tmp_path / "file")
    with pytest.raises(uni.errors.NotFoundError, match="No dataset was saved at"):
        Dataset.load(tmp_path / "file")
    (tmp_path / "dataset.json").write_text('{"format": "unisono-dataset-2"}')
    with pytest.raises(uni.errors.DataLossError, match="not complete"):
        Dataset.load(tmp_path)
    Dataset.range(3).save(os.fsencode(tmp_path))
    assert len(Dataset.load(tmp_path)) == 3
    with pytest.raises(TypeError, match="must consist of TensorSpec"):
        Dataset.load(tmp_path, "x")
    with pytest.raises(uni.errors.NotFoundError, match=r"no folder .*missing"):
        list(Dataset.range(3).cache(tmp_path / "missing" / "c"))


def test_a_cache_of_another_dataset_is_refused(tmp_path):
    list(Dataset.range(3).cache(tmp_path / "c"))
    with pytest.raises(uni.errors.InvalidArgumentError, match="by another dataset"):
        list(Dataset.from_tensor_slices(["a"]).cache(tmp_path / "c"))


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_the_end_is_a_position_too(tmp_path, compression):
    Dataset.range(5).save(tmp_path / "s", compression)
    cached = Dataset.range(5).cache(tmp_path / "c")
    list(cached)
    for dataset in (cached, Dataset.load(tmp_path / "s"), cached.map(abs).batch(2)):
        iterator = iter(dataset)
        list(iterator)
        assert list(resumed(dataset, saved(iterator))) == []
