import numpy as np
import pytest

from unisono import errors
from unisono._src.foundation import row_files
from unisono._src.saving.format import array_store, manifest, part_files

CASES = [
    ((12, 8), 0, 3),
    ((8, 12), 1, 4),
    ((21, 9), 0, 3),
    ((4, 6, 10), 2, 5),
    ((64,), 0, 4),
]


def entry_of(array):
    return manifest.Entry(manifest.ARRAY, array.shape, array.dtype.name, "a0")


def read_randomly(directory, array, rng):
    """Reads some parts, and compares them with the array."""
    entry = entry_of(array)
    opened = array_store.open_all(directory, {"a0": entry})["a0"]
    for _ in range(8):
        ends = [sorted(rng.choice(n + 1, 2, replace=False)) for n in array.shape]
        part = tuple((int(a), int(b)) for a, b in ends)
        found = part_files.read(directory, entry, opened, part)
        assert np.array_equal(found, array[tuple(slice(*p) for p in part)])


@pytest.fixture(params=["as a whole", "by ranges of bytes"])
def limits(request, monkeypatch):
    """Small blocks; and chunks that count as large, or none."""
    monkeypatch.setattr(part_files, "_AT_ONCE_BYTES", 300)
    if request.param == "by ranges of bytes":
        monkeypatch.setattr(part_files, "_RANGE_BYTES", 16)


@pytest.mark.parametrize(("shape", "axis", "count"), CASES)
@pytest.mark.parametrize("most", [20, 64, 1 << 20])
def test_parts_of_several_writers_are_one_array(
    tmp_path, limits, shape, axis, count, most
):
    rng = np.random.default_rng(0)
    whole = rng.normal(size=shape).astype(np.float32)
    parts = np.split(whole, count, axis)
    chunks = part_files.choose_chunks(parts[0].shape, axis, 4, most)
    for i, part in enumerate(parts):
        start = tuple(i * part.shape[a] if a == axis else 0 for a in range(part.ndim))
        where = tmp_path / f"w{i}"
        part_files.write(where, "a0", whole.shape, chunks, start, part)
    row_files.finish(tmp_path, [f"w{i}" for i in range(count)], {})
    read_randomly(tmp_path, whole, rng)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_parts_of_an_array_in_one_chunk_are_read(tmp_path, limits, dtype):
    import ml_dtypes

    rng = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    whole = rng.integers(0, 2, size=(9, 10, 3)).astype(kind)
    array_store.write_all(tmp_path, {"a0": whole})
    read_randomly(tmp_path, whole, rng)


@pytest.mark.parametrize(("shape", "axis"), [((6, 8), 0), ((7, 8), 0), ((5, 4), 1)])
def test_chunks_divide_a_part_along_the_axis_that_is_cut(shape, axis):
    for most in range(1, 60):
        chunks = part_files.choose_chunks(shape, axis, 1, most)
        assert shape[axis] % chunks[axis] == 0
        assert all(1 <= c <= n for c, n in zip(chunks, shape, strict=True))


def test_a_missing_chunk_is_damage(tmp_path):
    whole = np.ones((4, 4), np.float32)
    part_files.write(tmp_path, "a0", whole.shape, (2, 4), (0, 0), whole[:2])
    entry = entry_of(whole)
    opened = array_store.open_all(tmp_path, {"a0": entry})["a0"]
    assert part_files.read(tmp_path, entry, opened, ((0, 2), (0, 4))).sum() == 8
    with pytest.raises(errors.DataLossError, match="a0"):
        part_files.read(tmp_path, entry, opened, ((0, 4), (0, 4)))
