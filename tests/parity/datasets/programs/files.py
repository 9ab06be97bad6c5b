"""Datasets read from files: names, lines of text, TFRecords."""

import pathlib

from tests.parity.datasets.kit import (
    both,
    cardinality,
    elements,
    error,
    flip,
    plain,
    program,
    records,
    spec,
    structure,
    write,
)


def _names(dataset):
    return [pathlib.Path(name).name for name in elements(dataset)]


def _some(tmp):
    for name in ("b.txt", "a.txt", "c.dat"):
        write(tmp, name, name)


@program()
def list_files_in_order(tf, tmp):
    _some(tmp)
    dataset = tf.data.Dataset.list_files(str(tmp / "*"), shuffle=False)
    return [_names(dataset), spec(dataset.element_spec), cardinality(dataset)]


@program()
def list_files_of_a_pattern(tf, tmp):
    _some(tmp)
    return _names(tf.data.Dataset.list_files(str(tmp / "*.txt"), shuffle=False))


@program()
def list_files_of_several_patterns(tf, tmp):
    _some(tmp)
    patterns = [str(tmp / "c.*"), str(tmp / "?.txt")]
    return _names(tf.data.Dataset.list_files(patterns, shuffle=False))


@program()
def list_files_shuffled(tf, tmp):
    _some(tmp)
    dataset = tf.data.Dataset.list_files(str(tmp / "*"), shuffle=True, seed=3)
    return [sorted(_names(dataset)), cardinality(dataset)]


@program()
def list_files_shuffles_unless_told(tf, tmp):
    for i in range(12):
        write(tmp, f"f{i:02}", "")
    dataset = tf.data.Dataset.list_files(str(tmp / "f*"))
    seen = [_names(dataset) for _ in range(4)]
    return [sorted(seen[0]), all(order == sorted(order) for order in seen)]


@program()
def list_files_without_a_match(tf, tmp):
    return [
        error(lambda: tf.data.Dataset.list_files(str(tmp / "none*"))),
        error(lambda: tf.data.Dataset.list_files(str(tmp / "none*"), shuffle=False)),
    ]


@program()
def lines_of_a_file(tf, tmp):
    name = write(tmp, "a", "one\ntwo\nthree\n")
    dataset = tf.data.TextLineDataset(name)
    return [both(dataset), structure(next(iter(dataset))), cardinality(dataset)]


@program()
def lines_of_several_files(tf, tmp):
    names = [write(tmp, "a", "1\n2\n"), write(tmp, "b", ""), write(tmp, "c", "3\n")]
    return elements(tf.data.TextLineDataset(names))


@program()
def lines_of_a_dataset_of_files(tf, tmp):
    write(tmp, "a", "1\n2\n")
    write(tmp, "b", "3\n")
    names = tf.data.Dataset.list_files(str(tmp / "*"), shuffle=False)
    return elements(tf.data.TextLineDataset(names))


@program()
def lines_without_a_last_newline(tf, tmp):
    names = [write(tmp, "a", "1\n2"), write(tmp, "b", "3")]
    return elements(tf.data.TextLineDataset(names))


@program()
def blank_lines(tf, tmp):
    return elements(tf.data.TextLineDataset(write(tmp, "a", "\n1\n\n\n2\n \n")))


@program()
def lines_with_carriage_returns(tf, tmp):
    return elements(tf.data.TextLineDataset(write(tmp, "a", "1\r\n\r\n2\n3\r\n")))


@program()
def lines_that_are_not_ascii(tf, tmp):
    return elements(tf.data.TextLineDataset(write(tmp, "a", b"\xc3\xa9\n\xff\n")))


@program()
def compressed_lines(tf, tmp):
    found = {}
    for kind in ("GZIP", "ZLIB"):
        names = [write(tmp, kind + i, f"{i}1\n{i}2\n", kind) for i in "ab"]
        found[kind] = elements(tf.data.TextLineDataset(names, compression_type=kind))
    return found


@program()
def lines_read_in_parallel_alternate(tf, tmp):
    names = [write(tmp, "a", "1\n2\n3\n"), write(tmp, "b", "4\n5\n")]
    return elements(tf.data.TextLineDataset(names, num_parallel_reads=2))


@program()
def lines_of_a_missing_file(tf, tmp):
    made = []
    found = error(lambda: made.append(tf.data.TextLineDataset(str(tmp / "no"))))
    return [found, error(lambda: tf.data.TextLineDataset(str(tmp / "no")))]


@program()
def lines_before_a_missing_file_are_read(tf, tmp):
    it = iter(tf.data.TextLineDataset([write(tmp, "a", "1\n2\n"), str(tmp / "no")]))
    return [plain(next(it)), plain(next(it)), error(lambda: next(it))]


@program()
def records_of_a_file(tf, tmp):
    name = write(tmp, "a", records(b"one", b"", b"\x00\xff" * 3))
    dataset = tf.data.TFRecordDataset(name)
    return [both(dataset), structure(next(iter(dataset))), cardinality(dataset)]


@program()
def records_of_several_files(tf, tmp):
    names = [
        write(tmp, name, records(*(f"{name}{i}".encode() for i in range(n))))
        for name, n in (("a", 3), ("b", 0), ("c", 1))
    ]
    return [
        elements(tf.data.TFRecordDataset(names)),
        elements(tf.data.TFRecordDataset(tf.data.Dataset.from_tensor_slices(names))),
    ]


@program()
def long_records(tf, tmp):
    name = write(tmp, "a", records(b"x" * 300_000, b"y" * 70_000))
    return [len(x) for x in tf.data.TFRecordDataset(name).as_numpy_iterator()]


@program()
def compressed_records(tf, tmp):
    found = {}
    for kind in ("GZIP", "ZLIB"):
        names = [write(tmp, kind + i, records(i.encode(), b"z"), kind) for i in "ab"]
        found[kind] = elements(tf.data.TFRecordDataset(names, compression_type=kind))
    return found


@program()
def records_read_in_parallel_alternate(tf, tmp):
    names = [
        write(tmp, "a", records(b"1", b"2", b"3")),
        write(tmp, "b", records(b"4", b"5")),
    ]
    return elements(tf.data.TFRecordDataset(names, num_parallel_reads=2))


@program()
def damaged_records(tf, tmp):
    good = records(b"first", b"second")
    size = len(records(b"first"))
    found = {}
    for what, offset in (
        ("length", 0),
        ("checksum of length", 8),
        ("data", 13),
        ("checksum of data", size - 1),
    ):
        name = write(tmp, what.replace(" ", "-"), good)
        flip(name, offset)
        found[what] = error(lambda name=name: tf.data.TFRecordDataset(name))
    return found


@program()
def truncated_records(tf, tmp):
    good = records(b"first", b"second")
    size = len(records(b"first"))
    found = {}
    for cut in (size + 4, size + 10, size + 14, len(good) - 2):
        name = write(tmp, f"cut{cut}", good[:cut])
        it = iter(tf.data.TFRecordDataset(name))
        found[cut] = [plain(next(it)), error(lambda it=it: next(it))]
    return found


@program()
def records_of_something_else(tf, tmp):
    name = write(tmp, "a", "this is a text and not a file of records\n")
    return error(lambda: tf.data.TFRecordDataset(name))


@program()
def compression_told_wrongly(tf, tmp):
    name = write(tmp, "a", records(b"one", b"two"))
    return error(lambda: tf.data.TFRecordDataset(name, compression_type="GZIP"))


@program()
def records_of_a_missing_file(tf, tmp):
    return error(lambda: tf.data.TFRecordDataset(str(tmp / "no")))


@program("H08")
def files_interleaved(tf, tmp):
    for i in range(3):
        write(tmp, f"f{i}", "".join(f"{i}{j}\n" for j in range(i + 2)))
    names = tf.data.Dataset.list_files(str(tmp / "f*"), shuffle=False)
    return {
        "one after another": elements(names.flat_map(tf.data.TextLineDataset)),
        "two at a time": elements(
            names.interleave(tf.data.TextLineDataset, cycle_length=2)
        ),
        "in blocks": elements(
            names.interleave(tf.data.TextLineDataset, cycle_length=3, block_length=2)
        ),
    }
