"""Reading files: chunks, compression, positions, damage."""

import gc
import gzip
import json
import pathlib
import random
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import unisono as uni
from tests.unit.input.pipelines import masked_crc32c, resumed, saved, tfrecords
from unisono._src.input.sources import files

TextLineDataset, TFRecordDataset = uni.data.TextLineDataset, uni.data.TFRecordDataset
DataLossError = uni.errors.DataLossError
InvalidArgumentError = uni.errors.InvalidArgumentError

PACKED: dict[str | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
}
RECORDS = [b"", b"a", b"bcd" * 5, b"\0\0", bytes(range(256)), b"end"]


@pytest.fixture(params=[7, 1 << 20], ids=["chunks of 7 bytes", "large chunks"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(files, "_CHUNK", request.param)


def read(dataset):
    return [bytes(x.item()) for x in dataset]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(0, 2**32))
@example([b"", b"x" * 64, b"x" * 65, b"x" * 4096, b"x" * 4097], 0)
def test_checksums_of_many_records_are_those_of_each(records, seed):
    records = [*records, random.Random(seed).randbytes(seed % 9000)]
    assert files.masked_checksums(records).tolist() == [
        masked_crc32c(r) for r in records
    ]


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("compression", PACKED)
def test_records_are_read_whatever_the_chunks(tmp_path, compression):
    for number, records in enumerate((RECORDS, [], RECORDS[::-1])):
        data = PACKED[compression](tfrecords(records))
        (tmp_path / str(number)).write_bytes(data)
    paths = [str(tmp_path / str(number)) for number in range(3)]
    dataset = TFRecordDataset(paths, compression)
    assert read(dataset) == RECORDS + RECORDS[::-1]


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_lines_are_read_whatever_the_chunks(tmp_path, compression, ending):
    lines = [b"first", b"", b"a line that is longer than a chunk", b"x", b"last"]
    path = tmp_path / "lines"
    path.write_bytes(PACKED[compression](b"\n".join(lines) + ending))
    assert read(TextLineDataset(str(path), compression)) == lines


@pytest.mark.parametrize("compression", PACKED)
def test_a_line_that_is_too_long_is_refused_with_the_name_of_its_file(
    tmp_path, monkeypatch, compression
):
    monkeypatch.setattr(files, "_CHUNK", 7)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 20)
    for length, end in [(20, b"\n"), (20, b""), (21, b"\n"), (21, b""), (90, b"\nb\n")]:
        path = tmp_path / "lines"
        path.write_bytes(PACKED[compression](b"first\n" + b"a" * length + end))
        made = TextLineDataset(path, compression)
        if length == 20:
            assert read(made) == [b"first", b"a" * 20]
            continue
        iterator = iter(made)
        assert bytes(next(iterator).item()) == b"first"
        with pytest.raises(InvalidArgumentError, match=r"lines has a line of more"):
            next(iterator)
        # It never goes on in the middle of the line.
        assert next(iterator, None) is None


def test_a_few_compressed_bytes_are_not_inflated_beyond_what_is_asked(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(zlib.compress(b"a" * (1 << 26)))
    file = files.open_file(str(path), "ZLIB")
    tracemalloc.start()
    try:
        assert file.read(10) == b"a" * 10
        assert tracemalloc.get_traced_memory()[1] < 1 << 21
    finally:
        tracemalloc.stop()
        file.close()


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("compression", PACKED)
def test_reading_continues_at_any_record(tmp_path, compression):
    texts = [r.replace(b"\n", b"") for r in RECORDS if r]
    for number in range(2):
        (tmp_path / f"{number}.tfrecord").write_bytes(
            PACKED[compression](tfrecords(RECORDS))
        )
        (tmp_path / f"{number}.txt").write_bytes(
            PACKED[compression](b"\n".join(texts) + b"\n" * number)
        )
    for kind, ending in ((TFRecordDataset, "tfrecord"), (TextLineDataset, "txt")):
        paths = [str(tmp_path / f"{number}.{ending}") for number in range(2)]
        whole = read(kind(paths, compression))
        for stop in range(len(whole) + 1):
            iterator = iter(kind(paths, compression))
            begin = [next(iterator).item() for _ in range(stop)]
            rest = read(resumed(kind(paths, compression), saved(iterator)))
            assert begin + rest == whole


def test_records_of_fixed_length_continue_too(tmp_path, chunk):
    path = tmp_path / "fixed"
    path.write_bytes(b"head" + bytes(range(30)) + b"foot!")

    def make():
        return uni.data.FixedLengthRecordDataset(str(path), 6, 4, 5)

    whole = [bytes(range(i, i + 6)) for i in range(0, 30, 6)]
    assert read(make()) == whole
    for stop in range(6):
        iterator = iter(make())
        for _ in range(stop):
            next(iterator)
        assert read(resumed(make(), saved(iterator))) == whole[stop:]
    path.write_bytes(b"head" + bytes(20) + b"foot!")
    with pytest.raises(InvalidArgumentError, match=r"fixed.*2 bytes at byte 22"):
        read(make())


def ends_of(records):
    return np.cumsum([16 + len(r) for r in records]).tolist()


def test_every_flipped_bit_is_found_and_the_records_before_it_are_given(tmp_path):
    records = [b"one", b"", b"three"]
    whole, path = tfrecords(records), tmp_path / "damaged.tfrecord"
    ends = ends_of(records)
    for at in range(len(whole)):
        number = sum(end <= at for end in ends)
        begin = [0, *ends][number]
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            iterator = iter(TFRecordDataset(str(path)))
            found = [next(iterator).item() for _ in range(number)]
            assert found == records[:number]
            with pytest.raises(DataLossError, match=rf"damaged.*byte {begin}\b"):
                next(iterator)
            assert next(iterator, None) is None


@pytest.mark.usefixtures("chunk")
def test_every_truncation_is_found_unless_it_leaves_whole_records(tmp_path):
    records = [b"one", b"", b"three"]
    whole, path = tfrecords(records), tmp_path / "short.tfrecord"
    ends = [0, *ends_of(records)]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        number = sum(0 < end <= size for end in ends)
        iterator = iter(TFRecordDataset(str(path)))
        assert [next(iterator).item() for _ in range(number)] == records[:number]
        if size in ends:
            assert next(iterator, None) is None
        else:
            with pytest.raises(DataLossError, match=rf"short.*byte {ends[number]}\b"):
                next(iterator)


@pytest.mark.parametrize("reads", [None, 2])
@pytest.mark.parametrize("damage", ["length", "data", "end"])
def test_after_a_damaged_record_the_next_file_is_read(tmp_path, damage, reads):
    paths = [str(tmp_path / name) for name in ("first", "damaged", "last")]
    for number, path in enumerate(paths):
        records = [b"%d-%d" % (number, i) for i in range(4)]
        pathlib.Path(path).write_bytes(tfrecords(records))
    whole = bytearray(pathlib.Path(paths[1]).read_bytes())
    begin = 2 * 19
    if damage == "end":
        del whole[begin + 5 :]
    else:
        whole[begin + (1 if damage == "length" else 13)] ^= 1
    pathlib.Path(paths[1]).write_bytes(whole)
    dataset = TFRecordDataset(paths, num_parallel_reads=reads)
    # Recorded from TensorFlow 2.21.
    wanted = {f"{n}-{i}".encode() for n in range(3) for i in range(4)}
    wanted -= {b"1-2", b"1-3"}
    found = read(dataset.ignore_errors())
    assert set(found) == wanted and len(found) == 10
    iterator = iter(dataset)
    seen, errors = [], 0
    while True:
        try:
            seen.append(next(iterator).item())
        except DataLossError:
            errors += 1
        except StopIteration:
            break
        again = iter(dataset)
        again.set_state(iterator.get_state())
        iterator = again
    assert (seen, errors) == (found, 1)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_a_cut_compressed_file_is_found(tmp_path, compression):
    whole = PACKED[compression](random.Random(0).randbytes(2000).replace(b"\n", b""))
    path = tmp_path / "cut"
    for size in (1, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DataLossError, match="cut is damaged near byte"):
            read(TextLineDataset(str(path), compression))


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_files_that_were_joined_are_read_to_the_end(tmp_path, compression):
    pack, path = PACKED[compression], tmp_path / "joined"
    path.write_bytes(pack(b"a\nb\n") + pack(b"c\n"))
    assert read(TextLineDataset(str(path), compression)) == [b"a", b"b", b"c"]
    path.write_bytes(b"")
    assert read(TextLineDataset(str(path), compression)) == []


@pytest.mark.parametrize("compression", PACKED)
def test_a_file_that_is_not_read_to_the_end_is_closed(tmp_path, compression):
    path = tmp_path / "lines"
    path.write_bytes(PACKED[compression](b"a\nb\n"))
    for _ in TextLineDataset(str(path), compression):
        break
    cached = TextLineDataset(str(path), compression).cache(tmp_path / "cache")
    for _ in range(2):
        for _ in cached:
            break
    assert len(read(cached)) == 2
    next(iter(cached))
    # An open file would raise a ResourceWarning, which is an error here.
    gc.collect()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache.cache", "lines"]


def test_a_file_that_is_not_there_is_named(tmp_path):
    for kind in (TextLineDataset, TFRecordDataset):
        for compression in PACKED:
            with pytest.raises(uni.errors.NotFoundError, match="missing"):
                read(kind([str(tmp_path / "missing")], compression))
    with pytest.raises(ValueError, match="compression_type 'BZIP2'"):
        TextLineDataset("x", "BZIP2")
    with pytest.raises(uni.errors.InvalidArgumentError, match=r"No files.*nothing\*"):
        uni.data.Dataset.list_files(str(tmp_path / "nothing*"))


def test_a_position_in_a_file_that_became_shorter_is_refused(tmp_path):
    path = tmp_path / "lines"
    for compression in ("GZIP", "ZLIB"):
        path.write_bytes(PACKED[compression](b"first\nsecond\n"))
        iterator = iter(TextLineDataset(str(path), compression))
        next(iterator)
        state = json.loads(json.dumps(iterator.get_state()))
        path.write_bytes(PACKED[compression](b"1\n"))
        with pytest.raises(DataLossError, match=r"lines is shorter.*position 6"):
            resumed(TextLineDataset(str(path), compression), state)


def test_array_records_are_read_by_number(tmp_path):
    module = pytest.importorskip("array_record.python.array_record_module")
    paths = []
    for number in range(2):
        paths.append(str(tmp_path / f"{number}.array_record"))
        writer = module.ArrayRecordWriter(paths[-1], "group_size:1")
        for i in range(5):
            writer.write(f"{number}-{i}".encode())
        writer.close()

    def make():
        return uni.data.ArrayRecordDataset(paths).shuffle(10, seed=1).batch(4)

    whole = [x for batch in make() for x in batch.tolist()]
    assert sorted(whole) == sorted(
        f"{number}-{i}".encode() for number in range(2) for i in range(5)
    )
    assert (len(make()), make().element_spec) == (3, uni.TensorSpec((None,), "string"))
    iterator = iter(make())
    next(iterator)
    rest = [x for batch in resumed(make(), saved(iterator)) for x in batch.tolist()]
    assert rest == whole[4:]


def test_parquet_files_are_read_row_by_row(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    paths = []
    for number in range(2):
        paths.append(str(tmp_path / f"{number}.parquet"))
        rows = range(5 * number, 5 * number + 5)
        table = {"x": list(rows), "name": [f"row {i}" for i in rows]}
        parquet.write_table(pyarrow.table(table), paths[-1], row_group_size=2)

    def make():
        return uni.data.ParquetDataset(paths)

    assert [(int(r["x"]), r["name"].item()) for r in make()] == [
        (i, f"row {i}".encode()) for i in range(10)
    ]
    batches = list(make().batch(4))
    assert [b["x"].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for stop in range(11):
        iterator = iter(make())
        for _ in range(stop):
            next(iterator)
        rest = [int(r["x"]) for r in resumed(make(), saved(iterator))]
        assert rest == list(range(stop, 10))
