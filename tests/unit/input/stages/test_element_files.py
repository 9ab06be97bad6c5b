"""The files of `cache(filename)` and `save`: no changed bit gives a wrong number."""

import gzip
import json
import struct

import ml_dtypes
import numpy as np
import pytest

import unisono as uni
from unisono._src.input.sources import files
from unisono._src.input.stages import element_files
from unisono.data import Dataset
from unisono.errors import DataLossError


def make_dataset():
    numbers = np.arange(12, dtype=np.float32).reshape(4, 3)
    words = np.array([b"a", b"", b"ccc", b"dd"], object)
    return Dataset.from_tensor_slices({"x": numbers, "y": (words, np.arange(4))})


def as_lists(dataset):
    return [
        (e["x"].tolist(), np.asarray(e["y"][0], object).item(), int(e["y"][1]))
        for e in dataset
    ]


def saved_in(kind, folder):
    """Returns a file with the elements, and a function that reads them."""
    if kind == "cache":
        list(make_dataset().cache(folder / "c"))
        return folder / "c.cache", lambda: as_lists(make_dataset().cache(folder / "c"))
    make_dataset().save(folder / "s", "GZIP" if kind == "GZIP" else None)
    if kind == "index":
        found = folder / "s" / "dataset.json"
    else:
        (found,) = (folder / "s").glob("*.elements")
    return found, lambda: as_lists(Dataset.load(folder / "s"))


@pytest.mark.parametrize("kind", ["cache", "shard", "index", "GZIP"])
def test_a_bit_flipped_anywhere_is_noticed(tmp_path, kind):
    path, read = saved_in(kind, tmp_path)
    whole, right = path.read_bytes(), as_lists(make_dataset())
    assert read() == right
    for position in range(0, len(whole), 3):
        data = bytearray(whole)
        data[position] ^= 1 << (position % 8)
        path.write_bytes(data)
        try:
            found = read()
        except DataLossError as error:
            assert path.name in str(error)
        else:
            # Gzip has a time, a name and some bits that mean nothing.
            assert kind == "GZIP", f"expected DataLossError for byte {position}"
            assert found == right


@pytest.mark.parametrize("kind", ["cache", "shard", "index", "GZIP"])
def test_a_file_that_was_cut_is_noticed(tmp_path, kind):
    path, read = saved_in(kind, tmp_path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataLossError, match=path.name):
            read()


def test_the_message_names_the_file_and_the_element(tmp_path):
    path, read = saved_in("cache", tmp_path)
    data = bytearray(path.read_bytes())
    at = data.index(np.array([6, 7, 8], np.float32).tobytes())
    data[at + 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        DataLossError, match=rf"{path} is damaged at element 2 .*its checksum does not"
    ):
        read()


def test_elements_in_another_order_are_noticed(tmp_path):
    """Each of them has a right checksum; the numbers are not in order."""
    dataset = Dataset.range(4).cache(tmp_path / "c")
    list(dataset)
    path = tmp_path / "c.cache"
    data = path.read_bytes()
    chunk = (len(data) - 16 - 25) // 4
    assert len(data) == 16 + 4 * chunk + 25, "expected four chunks of one size"
    chunks = [data[16 + i * chunk : 16 + (i + 1) * chunk] for i in range(4)]
    path.write_bytes(data[:16] + b"".join(chunks[::-1]) + data[-25:])
    with pytest.raises(DataLossError, match="element 3 stands there"):
        list(dataset)


def test_files_of_an_earlier_release_are_refused_in_words(tmp_path):
    (tmp_path / "c.cache").write_bytes(b"unisono-cache-2\n.")
    with pytest.raises(DataLossError, match=r"earlier release .*next pass writes it"):
        list(Dataset.range(3).cache(tmp_path / "c"))
    (tmp_path / "dataset.json").write_text('{"format": "unisono-dataset-1"}')
    with pytest.raises(
        DataLossError, match=r"earlier release .*Save the dataset again"
    ):
        Dataset.load(tmp_path)


def forge(path, contents, length=None):
    """Writes a file with one chunk, whose checksums are right."""
    head = struct.pack("<cQQ", b"+", 0, len(contents) if length is None else length)
    parts = [b"unisono-cache-3\n", head, struct.pack("<I", files.checksum(head))]
    parts += [contents, struct.pack("<I", files.checksum(contents))]
    path.write_bytes(b"".join(parts))


def head(arrays, structure=None):
    return json.dumps({"structure": structure, "arrays": arrays}).encode() + b"\n"


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        head([["<f4", [2**62]]]),
        head([["<f4", [-1]]]),
        head([["<f4", ["x"]]]),
        head([["nonsense", [1]]]),
        head([["O", [1]]]) + bytes(8),
        head([["text", [1]]]) + struct.pack("<q", -5),
        head([["text", [1]]]) + struct.pack("<q", 2**60),
        head([], {"tuple": [None]}),
        head([["|u1", [1]]], {"tuple": []}) + bytes(16),
        head([["|u1", [1]]]) + bytes(99),
    ],
    ids=lambda x: repr(x[:60]),
)
def test_a_strangers_file_with_right_checksums_is_refused(tmp_path, contents):
    forge(tmp_path / "c.cache", contents)
    with pytest.raises(DataLossError, match=r"c\.cache is damaged at element 0"):
        list(Dataset.range(3).cache(tmp_path / "c"))


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_length_beyond_the_file_takes_no_memory(tmp_path, compression):
    path = tmp_path / "f"
    forge(path, b"", length=2**62)
    if compression:
        path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DataLossError, match="the file ends within it"):
        element_files.ElementReader(str(path), compression).read(1)


@pytest.mark.parametrize(
    "shards", [[["../x.elements", 1]], [["x.txt", 1]], [["x.elements", -1]], [1], None]
)
def test_a_strangers_index_is_refused(tmp_path, shards):
    Dataset.range(3).save(tmp_path)
    index = json.loads((tmp_path / "dataset.json").read_text())
    del index["crc32c"]
    index["shards"] = shards
    text = json.dumps(index, sort_keys=True).encode()
    index["crc32c"] = files.checksum(text)
    (tmp_path / "dataset.json").write_text(json.dumps(index))
    with pytest.raises(DataLossError, match=r"dataset\.json is damaged"):
        Dataset.load(tmp_path)


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_arrays_of_every_kind_come_back_and_can_be_changed(tmp_path, compression):
    given: tuple[np.ndarray, ...] = (
        np.arange(6, dtype=np.int8).reshape(2, 3),
        np.zeros((0, 4), np.float64),
        np.ones(3, ml_dtypes.bfloat16),
        np.array(7),
        np.array([[b"x", b""]], object),
        np.array([True, False]),
        np.array(["2026-01-01"], "M8[s]"),
    )
    path = str(tmp_path / "f")
    writer = element_files.ElementWriter(path, compression)
    writer.write(given)
    writer.finish()
    (found,) = element_files.ElementReader(path, compression).read(2)
    for want, got in zip(given, found, strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.asarray(got).dtype == want.dtype
    found[0][...] = 1
    assert found[0].flags.aligned


def test_a_large_compressed_element_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(element_files, "_PIECE", 10)
    Dataset.from_tensors(np.arange(1000)).save(tmp_path, "GZIP")
    (found,) = Dataset.load(tmp_path)
    assert found.tolist() == list(range(1000))


def test_no_file_is_written_through_a_link(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(FileExistsError):
        element_files.ElementWriter(str(tmp_path / "link"))
    assert target.read_text() == "precious"


def test_names_of_partial_files_cannot_be_guessed(tmp_path):
    names = set()
    for _ in range(2):
        iterator = iter(Dataset.range(3).cache(tmp_path / "c"))
        next(iterator)
        (found,) = tmp_path.glob("*.partial")
        names.add(found.name)
        del iterator
        assert not list(tmp_path.glob("*.partial"))
    assert len(names) == 2
    assert all(len(n.split(".")[-2]) == 16 for n in names)


def test_a_position_in_a_file_that_was_replaced_is_refused(tmp_path):
    list(Dataset.range(5).cache(tmp_path / "c"))
    iterator = iter(Dataset.range(5).cache(tmp_path / "c"))
    next(iterator)
    state = uni.train.Checkpoint(iterator=iterator)
    path = state.write(tmp_path / "position")
    (tmp_path / "c.cache").unlink()
    list(Dataset.range(100, 105).map(lambda n: (n, n)).cache(tmp_path / "c"))
    fresh = iter(Dataset.range(5).cache(tmp_path / "c"))
    with pytest.raises(DataLossError, match="is damaged at element 1"):
        uni.train.Checkpoint(iterator=fresh).read(path)
        next(fresh)


def test_padded_batches_of_single_texts_are_stored_as_text(tmp_path):
    slices = Dataset.from_tensor_slices((["a", "bb", "c"], [1, 2, 3]))
    dataset = slices.padded_batch(2)
    expected = [[b"a", b"bb"], [b"c"]]
    dataset.save(str(tmp_path / "saved"))
    cached = dataset.cache(str(tmp_path / "cached"))
    loaded = Dataset.load(str(tmp_path / "saved"))
    for found in (dataset, loaded, cached, cached):
        assert [x.tolist() for x, _ in found.as_numpy_iterator()] == expected


def test_only_bytes_are_stored_as_text():
    with pytest.raises(TypeError, match="Cannot store int as text: 3"):
        element_files._describe(np.array([b"a", 3], object))
