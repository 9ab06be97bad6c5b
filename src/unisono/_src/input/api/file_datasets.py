"""Datasets of what files hold."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.input.api.dataset import Dataset
from unisono._src.input.plan import elements
from unisono._src.input.sources import columnar, files
from unisono._src.input.stages import argument_checks, mapping, mixing


class _FileDataset(Dataset, abc.ABC):
    """Records of files; abstract."""

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
        cycle = (
            mixing.default_cycle() if parallel == mapping.AUTOTUNE else parallel or 1
        )
        super().__init__(
            mixing.Interleave(
                filenames._node,
                lambda name: Dataset(reader((files.path_of(name),))),
                cycle,
                1 if parallel is not None else 0,
            )
        )


def _check_names(spec: Any) -> None:
    is_text = not elements.is_structure(spec) and spec.dtype.kind == "O"
    if not is_text or spec.shape not in ((), None):
        raise TypeError(
            f"The `filenames` argument must contain text, received a dataset of {spec}."
        )


class _RecordDataset(_FileDataset, abc.ABC):
    """Records whose ends the file itself tells; abstract."""

    _kind: ClassVar[str]

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        packed = files.check_compression(compression_type)
        argument_checks.natural(buffer_size, "buffer_size")
        kind = self._kind
        super().__init__(
            filenames,
            lambda names: files.Files(kind, names, packed),
            num_parallel_reads,
        )


class TextLineDataset(_RecordDataset):
    """The lines of text files, without their ends.

    Args:
        filenames: one or several paths, or a dataset of them.
        compression_type: None, "GZIP" or "ZLIB".
        buffer_size: accepted for TensorFlow's sake.
        num_parallel_reads: how many files are read in turn; None reads them one after
            the other.
        name: accepted for TensorFlow's sake.
    """

    _kind = "TextLine"


class TFRecordDataset(_RecordDataset):
    """The records of TFRecord files, as `bytes`; lengths and checksums are checked.

    The arguments are those of `TextLineDataset`.
    """

    _kind = "TFRecord"


class FixedLengthRecordDataset(_FileDataset):
    """Records of equal length."""

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
        kind = files.check_compression(compression_type)
        argument_checks.natural(buffer_size, "buffer_size")
        layout = (
            argument_checks.positive(record_bytes, "record_bytes"),
            argument_checks.natural(header_bytes, "header_bytes"),
            argument_checks.natural(footer_bytes, "footer_bytes"),
        )
        super().__init__(
            filenames,
            lambda names: files.Files("FixedLengthRecord", names, kind, layout),
            num_parallel_reads,
        )


class ParquetDataset(_FileDataset):
    """The rows of Parquet files, each a dict of columns; needs `pyarrow`.

    Not in TensorFlow.

    Args:
        filenames: one or several paths, or a dataset of them.
        num_parallel_reads: how many files are read in turn; None reads them one after
            the other.
    """

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        num_parallel_reads: int | None = None,
    ) -> None:
        super().__init__(filenames, columnar.Parquet, num_parallel_reads)


class ArrayRecordDataset(_FileDataset):
    """The records of ArrayRecord files, as `bytes`; shuffling them costs no reading.

    Not in TensorFlow.

    Args:
        filenames: one or several paths, or a dataset of them.
        num_parallel_reads: how many files are read in turn; None reads them one after
            the other.
    """

    def __init__(
        self,
        filenames: argument_checks.Paths | Dataset,
        num_parallel_reads: int | None = None,
    ) -> None:
        super().__init__(filenames, columnar.ArrayRecord, num_parallel_reads)


publish(
    "unisono.data",
    ArrayRecordDataset,
    FixedLengthRecordDataset,
    ParquetDataset,
    TFRecordDataset,
    TextLineDataset,
)
