"""Datasets of the records, lines and rows of files."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np

from unisono._src.input.api.dataset import Dataset
from unisono._src.input.plan import elements
from unisono._src.input.sources import compressions, files, grain_sources
from unisono._src.input.stages import argument_checks, mapping, mixing


class FileDataset(Dataset, abc.ABC):
    """A dataset of the records of files; abstract."""

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        reader: Any,
        parallel: int | None,
    ) -> None:
        argument_checks.parallel(parallel, "num_parallel_reads")
        if not isinstance(filenames, Dataset):
            names = argument_checks.paths(filenames, "filenames")
            if parallel is None:
                super().__init__(reader(names))
                return
            filenames = Dataset.from_tensor_slices(np.array(names, object))
        else:
            _check_names(filenames.element_spec)
        # Names that come from a dataset are read one file at a time, as an interleave
        # of datasets of one file each.
        cycle = (
            mixing.default_cycle() if parallel == mapping.AUTOTUNE else parallel or 1
        )
        super().__init__(
            mixing.Interleave(
                argument_checks.plan(filenames, "filenames"),
                lambda name: Dataset(reader((files.path_of(name),))),
                cycle,
                # 0 reads a file to its end before the next one.
                1 if parallel is not None else 0,
            )
        )


def _check_names(spec: Any) -> None:
    """Raises `TypeError` unless the elements of a dataset are single texts."""
    is_text = not elements.is_structure(spec) and spec.dtype.kind == "O"
    if not is_text or spec.shape.rank not in (0, None):
        raise TypeError(
            f"The `filenames` argument must contain text, received a dataset of {spec}."
        )


class _RecordDataset(FileDataset, abc.ABC):
    """A dataset of records that end where the file says; abstract."""

    _kind: ClassVar[str]

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        packed = compressions.check_compression(compression_type)
        argument_checks.nonnegative_integer(buffer_size, "buffer_size")
        kind = self._kind
        super().__init__(
            filenames,
            lambda names: files.Files(kind, names, packed),
            num_parallel_reads,
        )


class TextLineDataset(_RecordDataset):
    r"""Reads the lines of text files as `bytes`, without the line breaks.

    A line can have at most 268,435,456 bytes; reading a longer one raises an
    `InvalidArgumentError` that names the file.

    Args:
        filenames: one or several paths, or a dataset of them.
        compression_type: None, "GZIP" or "ZLIB".
        buffer_size: checked for compatibility with TensorFlow and ignored.
        num_parallel_reads: the number of files to interleave; None reads the files one
            after the other.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: `filenames` are not paths.
        ValueError: the compression is unknown.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "lines.txt")
    ...     _ = path.write_text("one\ntwo\n")
    ...     list(TextLineDataset(path).as_numpy_iterator())
    [b'one', b'two']
    """

    _kind = "TextLine"


class TFRecordDataset(_RecordDataset):
    """Reads the records of TFRecord files as `bytes`, and checks their checksums.

    The arguments are those of `TextLineDataset`.

    Raises:
        TypeError: `filenames` are not paths.
        ValueError: the compression is unknown.
        DataLossError: while iterating, if a record is damaged.

    >>> import os, tempfile, unisono
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "records")
    ...     with unisono.io.TFRecordWriter(path) as writer:
    ...         writer.write(b"one")
    ...         writer.write(b"two")
    ...     list(TFRecordDataset(path).as_numpy_iterator())
    [b'one', b'two']
    """

    _kind = "TFRecord"


class FixedLengthRecordDataset(FileDataset):
    """Reads records of equal length from binary files as `bytes`.

    Args:
        filenames: one or several paths, or a dataset of them.
        record_bytes: the length of a record.
        header_bytes: how many bytes to skip at the beginning of each file.
        footer_bytes: how many bytes to skip at the end of each file.
        buffer_size: checked for compatibility with TensorFlow and ignored.
        compression_type: None, "GZIP" or "ZLIB".
        num_parallel_reads: the number of files to interleave; None reads the files one
            after the other.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: `filenames` are not paths, or a length is not an integer.
        InvalidArgumentError: `record_bytes` is less than 1, or another length is
            negative.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "records")
    ...     _ = path.write_bytes(b"headaabbcc")
    ...     list(FixedLengthRecordDataset(path, 2, 4).as_numpy_iterator())
    [b'aa', b'bb', b'cc']
    """

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        kind = compressions.check_compression(compression_type)
        argument_checks.nonnegative_integer(buffer_size, "buffer_size")
        layout = (
            argument_checks.positive_integer(record_bytes, "record_bytes"),
            argument_checks.nonnegative_integer(header_bytes, "header_bytes"),
            argument_checks.nonnegative_integer(footer_bytes, "footer_bytes"),
        )
        super().__init__(
            filenames,
            lambda names: files.Files("FixedLengthRecord", names, kind, layout),
            num_parallel_reads,
        )


class ParquetDataset(FileDataset):
    """Reads the rows of Parquet files as dicts of columns; needs `pyarrow`.

    Not in TensorFlow.

    ::

        for row in ParquetDataset("table.parquet"):
            print(row["price"])

    Args:
        filenames: one or several paths, or a dataset of them.
        num_parallel_reads: the number of files to interleave; None reads the files one
            after the other.
    """

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        num_parallel_reads: int | None = None,
    ) -> None:
        super().__init__(filenames, grain_sources.Parquet, num_parallel_reads)


class ArrayRecordDataset(FileDataset):
    """Reads the records of ArrayRecord files as `bytes`; needs Grain.

    Not in TensorFlow. The files have an index, so a shuffle reads only the records
    that it returns.

    Args:
        filenames: one or several paths, or a dataset of them.
        num_parallel_reads: the number of files to interleave; None reads the files one
            after the other.

    >>> import pathlib, tempfile
    >>> from array_record.python.array_record_module import ArrayRecordWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = str(pathlib.Path(folder, "records"))
    ...     writer = ArrayRecordWriter(path, "group_size:1")
    ...     writer.write(b"one")
    ...     writer.write(b"two")
    ...     writer.close()
    ...     sorted(ArrayRecordDataset(path).shuffle(2).as_numpy_iterator())
    [b'one', b'two']
    """

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        num_parallel_reads: int | None = None,
    ) -> None:
        super().__init__(filenames, grain_sources.ArrayRecord, num_parallel_reads)
