"""Datasets of CSV files: `CsvDataset` and `make_csv_dataset`."""

from __future__ import annotations

import contextlib
import csv
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, final

import numpy as np

from unisono._src.foundation import dtypes, errors, local_files
from unisono._src.input.api.dataset import Dataset
from unisono._src.input.api.file_datasets import FileDataset
from unisono._src.input.sources import compressions, files
from unisono._src.input.stages import argument_checks, mapping
from unisono._src.ops.tensors import DType, TensorLike
from unisono._src.ops.text import csv_lines, numbers
from unisono._src.ops.text.arrays import TextLike

# In the order in which `make_csv_dataset` tries them.
_INFERRED = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)
_LARGEST = float(np.finfo(np.float32).max)


class CsvDataset(FileDataset):
    r"""Reads the rows of CSV files as tuples with a number or string per column.

    Args:
        filenames: one or several paths, or a dataset of them.
        record_defaults: for each column, the value of an empty field, or a type if
            empty fields are errors.
        compression_type: None, "GZIP" or "ZLIB".
        buffer_size: checked for compatibility with TensorFlow and ignored.
        header: whether to skip the first line of each file.
        field_delim: the character between fields.
        use_quote_delim: whether a field in double quotes may contain any character.
        na_value: a string that also means an empty field.
        select_cols: the columns to read, in increasing order; None for all.
        exclude_cols: the columns to skip, instead of `select_cols`.

    Raises:
        InvalidArgumentError: an argument is wrong, or a row that is read has wrong
            fields.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "table.csv")
    >>> _ = path.write_text("id,name\n1,a\n2,\n")
    >>> table = CsvDataset(path, [0, "none"], header=True)
    >>> [(int(number), name) for number, name in table.as_numpy_iterator()]
    [(1, b'a'), (2, b'none')]
    """

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        record_defaults: Sequence[DType | TensorLike | TextLike],
        compression_type: str | None = None,
        buffer_size: int | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
    ) -> None:
        packed = compressions.check_compression(compression_type)
        argument_checks.nonnegative_integer(buffer_size, "buffer_size")
        columns = select_cols
        if exclude_cols is not None:
            if select_cols is not None:
                raise ValueError("Give select_cols or exclude_cols, not both.")
            every = range(len(record_defaults) + len(exclude_cols))
            columns = [c for c in every if c not in exclude_cols]
        decode = csv_lines.Decoder(
            record_defaults, field_delim, use_quote_delim, na_value, columns, [b""]
        ).decode_one
        layout = (int(use_quote_delim), int(header), 0)
        super().__init__(
            filenames,
            lambda names: mapping.Map(
                files.Files("Csv", names, packed, layout), decode
            ),
            None,
        )


def make_csv_dataset(
    file_pattern: argument_checks.Paths,
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[DType | TensorLike | TextLike] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[str | int] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Dataset:
    r"""Returns a dataset with batches of the rows of CSV files, as dicts of columns.

    Args:
        file_pattern: one or several paths, or patterns of them.
        batch_size: the number of rows in a batch.
        column_names: the names of the columns; by default they are read from the first
            line.
        column_defaults: for each column that is read, the value of an empty field, or a
            type if empty fields are errors; by default they are inferred from the first
            rows.
        label_name: the column that becomes the second part of each element.
        select_columns: the names or numbers of the columns to read; None for all.
        field_delim: the character between fields.
        use_quote_delim: whether a field in double quotes may contain any character.
        na_value: a string that also means an empty field.
        header: whether the first line of each file has the names of the columns.
        num_epochs: how often to read the rows; None to repeat forever.
        shuffle: whether to shuffle the files and the rows.
        shuffle_buffer_size: the number of rows from which the next one is drawn.
        shuffle_seed: a seed, with which the order is the same in every run.
        prefetch_buffer_size: the number of batches to prepare in advance.
        num_parallel_reads: the number of files whose rows are interleaved.
        sloppy: accepted for compatibility with TensorFlow and ignored.
        num_rows_for_inference: the number of rows from which to infer types; None for
            all.
        compression_type: None, "GZIP" or "ZLIB".
        ignore_errors: whether to skip rows that cannot be read.
        encoding: the encoding with which names and types are read from the files.

    Raises:
        ValueError: no file matches, a column does not exist, or the names of columns
            differ between files.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "table.csv")
    >>> _ = path.write_text("id,price\n1,0.5\n2,1.5\n")
    >>> table = make_csv_dataset(path, 2, num_epochs=1, shuffle=False)
    >>> {name: column.tolist() for name, column in next(iter(table)).items()}
    {'id': [1, 2], 'price': [0.5, 1.5]}
    """
    paths = _find_files(file_pattern)
    packed = compressions.check_compression(compression_type)
    form = _Format(packed, field_delim, use_quote_delim, na_value, header, encoding)
    names = _find_names(paths, column_names, form)
    columns = _find_columns(names, select_columns)
    defaults: Sequence[object] = column_defaults or ()
    if column_defaults is None:
        skipped = (itertools.islice(form.rows(p), int(header), None) for p in paths)
        rows = itertools.islice(itertools.chain(*skipped), num_rows_for_inference)
        defaults = _find_defaults(rows, len(names), columns, na_value)
    decode = _make_decode(form, defaults, names, columns, label_name)
    dataset = Dataset.from_tensor_slices(np.array(paths, object))
    if shuffle:
        dataset = dataset.shuffle(len(paths), shuffle_seed)
    dataset = dataset.interleave(
        lambda path: Dataset(form.source(files.path_of(path))), num_parallel_reads or 1
    )
    if ignore_errors:
        # TensorFlow leaves single rows out, so each is tried by itself.
        dataset = dataset.map(lambda row: decode([row]) and row).ignore_errors()
    if shuffle:
        dataset = dataset.shuffle(shuffle_buffer_size, shuffle_seed)
    # Rows are decoded in batches, which is many times faster.
    dataset = dataset.repeat(num_epochs).batch(batch_size, num_epochs is None)
    ahead = mapping.AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size
    return dataset.map(lambda lines: decode(lines.tolist())).prefetch(ahead)


@final
class _Format(NamedTuple):
    """How files of a table are written."""

    compression: str | None
    delimiter: str
    is_quoted: bool
    missing: str
    has_header: bool
    encoding: str

    def source(self, path: str, has_header: bool | None = None) -> files.Files:
        """Returns the records of a file, by default without the header."""
        left_out = self.has_header if has_header is None else has_header
        layout = (int(self.is_quoted), int(left_out), 0)
        return files.Files("Csv", (path,), self.compression, layout)

    def rows(self, path: str) -> Iterator[list[str]]:
        """Yields the fields of each record of a file, and of its header."""
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self.is_quoted else csv.QUOTE_NONE
        cursor = self.source(path, False).cursor()
        with contextlib.closing(cursor):
            while block := cursor.read(64):
                texts = [record.decode(self.encoding) for record in block]
                yield from csv.reader(texts, delimiter=self.delimiter, quoting=quoting)


def _make_decode(
    form: _Format,
    defaults: Sequence[object],
    names: Sequence[str],
    columns: Sequence[int],
    label: str | None,
) -> Callable[[list[bytes]], Any]:
    """Returns a function that makes a batch of records.

    Raises:
        ValueError: there is no column of the label's name.
    """
    kept = [names[c] for c in columns]
    if label is not None and label not in kept:
        raise ValueError(
            f"`label_name` provided must be one of the columns: {kept}. Received: "
            f"{label}."
        )
    # Of all columns a row has no more.
    chosen = None if len(columns) == len(names) else columns
    decoder = csv_lines.Decoder(
        defaults, form.delimiter, form.is_quoted, form.missing, chosen, [b""]
    )

    def decode(lines: list[bytes]) -> Any:
        found = OrderedDict(zip(kept, decoder.decode(lines), strict=True))
        return found if label is None else (found, found.pop(label))

    return decode


def _find_files(pattern: argument_checks.Paths) -> list[str]:
    """Returns the files of patterns, in order.

    Raises:
        ValueError: there are none.
    """
    given = argument_checks.paths(pattern, "file_pattern")
    found = sorted({*local_files.glob(given)})
    if not found:
        raise ValueError(f"No files match `file_pattern` {pattern!r}.")
    return found


def _find_names(
    paths: Sequence[str], given: Sequence[str] | None, form: _Format
) -> list[str]:
    """Returns the names of the columns, from the files unless they are given."""
    if given is None and not form.has_header:
        raise ValueError(
            "Expected `column_names` or `header` arguments. Neither is provided."
        )
    names = list(given) if given is not None else next(form.rows(paths[0]), [])
    for path in paths[1:] if given is None else ():
        if next(form.rows(path), []) != names:
            raise ValueError(
                "All input CSV files should have the same column names in the header "
                f"row. File {path} has different column names."
            )
    if len({*names}) != len(names):
        raise ValueError(f"Names of columns must differ, received {names}.")
    return names


def _find_columns(
    names: Sequence[str], selected: Sequence[str | int] | None
) -> list[int]:
    """Returns the numbers of the columns to read, in rising order."""
    if selected is None:
        return list(range(len(names)))
    for one in selected:
        if one not in (names if isinstance(one, str) else range(len(names))):
            raise ValueError(
                f"Column {one} specified in `select_columns` must be of one of the "
                f"columns: {list(names)}."
            )
    return sorted({names.index(s) if isinstance(s, str) else s for s in selected})


def _find_defaults(
    rows: Iterator[list[str]], width: int, columns: Sequence[int], missing: str
) -> list[object]:
    """Returns a default for each column, whose type holds all fields of rows.

    A column of empty fields is text, as in TensorFlow.

    Raises:
        ValueError: a row has another number of fields.
    """
    found, filled = dict.fromkeys(columns, 0), set[int]()
    for row in rows:
        if len(row) != width:
            raise ValueError(
                f"Problem inferring types: a CSV row has {len(row)} fields, expected "
                f"{width}: {row}."
            )
        for c in columns:
            if row[c] in ("", missing):
                continue
            filled.add(c)
            while not _may_have(found[c], row[c]):
                found[c] += 1
    types = (*_INFERRED, dtypes.string)
    kinds = [types[found[c]] if c in filled else dtypes.string for c in columns]
    return ["" if kind == dtypes.string else kind.type(0) for kind in kinds]


def _may_have(rank: int, text: str) -> bool:
    """Returns whether a type, by its rank, has a field."""
    if rank == len(_INFERRED):
        return True
    dtype = _INFERRED[rank]
    if not numbers.is_number(text.encode(), dtype):
        return False
    # A larger number would be infinite.
    return dtype != dtypes.float32 or not _LARGEST < abs(float(text)) < np.inf


@final
class _CsvRecords(files.Reader):
    """The records of CSV files without their line ends.

    The layout of the node says whether quoted fields may have line ends, and whether
    the first record of each file is left out.
    """

    def _records(self, file: files.Buffered) -> tuple[list[bytes], list[int]]:
        is_quoted, has_header, _ = self._node.layout
        is_header = bool(has_header) and file.offset == 0
        while True:
            records, cut = _take(file, bool(is_quoted))
            sizes = itertools.accumulate(len(record) + 1 for record in records)
            # The last line of a file may lack its line feed.
            ends = self._note_begin(file, [min(size, cut) for size in sizes])
            file.drop(ends[-1] - file.offset if ends else 0)
            if is_header and not records:
                raise errors.InvalidArgumentError(
                    f"{file.path} is empty: it has no header."
                )
            if is_header:
                del records[0]
                self._begin = ends.pop(0)
            if records or not is_header:
                return [record.removesuffix(b"\r") for record in records], ends
            is_header = False


def _take(file: files.Buffered, is_quoted: bool) -> tuple[list[bytes], int]:
    """Returns the records that the window holds, and where their last line ends.

    Raises:
        InvalidArgumentError: a quoted field has no end.
    """
    is_whole = False
    while True:
        file.extend_to_line()
        window = file.window
        cut = len(window) if is_whole else window.rfind(b"\n") + 1 or len(window)
        lines = window[:cut].split(b"\n")
        if not lines[-1]:
            lines.pop()
        records = lines
        if is_quoted and b'"' in window[:cut]:
            records = _join_quoted(lines)
        if records or not lines:
            return records, cut
        if is_whole or len(window) > files.MAX_LINE_BYTES:
            raise errors.InvalidArgumentError(
                f"{file.path}: reached end of file without closing quoted field, which "
                f"begins after byte {file.offset}."
            )
        is_whole = not file.extend()


def _join_quoted(lines: list[bytes]) -> list[bytes]:
    r"""Returns records of lines; the last lines may be none, if more must follow.

    >>> _join_quoted([b"1", b'"a', b'b"', b'"c'])
    [b'1', b'"a\nb"']
    """
    records: list[bytes] = []
    parts: list[bytes] = []
    is_open = False
    for line in lines:
        parts.append(line)
        is_open ^= bool(line.count(b'"') & 1)
        if not is_open:
            records.append(b"\n".join(parts))
            parts.clear()
    return records


files.READERS["Csv"] = _CsvRecords
