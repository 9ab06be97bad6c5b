"""`TFRecordWriter`: files that `TFRecordDataset` reads."""

from __future__ import annotations

import gzip
import os
import zlib
from typing import Any, BinaryIO, final

import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.input.sources import crc32c, files


@final
class _Deflated:
    """A file whose content is compressed by zlib."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._deflate = file, zlib.compressobj()

    def write(self, data: bytes) -> None:
        self._file.write(self._deflate.compress(data))

    def flush(self) -> None:
        self._file.write(self._deflate.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        self._file.write(self._deflate.flush())
        self._file.close()


class TFRecordWriter:
    """Writes records to a TFRecord file; a context manager.

    Args:
        path: the file; one that is there is replaced.
        options: the compression: None, "", "GZIP" or "ZLIB".
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        options: str | None = None,
    ) -> None:
        kind = files.check_compression(options)
        raw = open(files.path_of(path), "wb")  # noqa: SIM115
        self._raw = raw
        self._file: Any = raw
        if kind == "GZIP":
            self._file = gzip.GzipFile(fileobj=raw, mode="wb")
        elif kind == "ZLIB":
            self._file = _Deflated(raw)

    def write(self, record: bytes) -> None:
        """Append one record."""
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"A record is bytes, received {type(record).__name__}. Encode it first."
            )
        record = bytes(record)
        length = len(record).to_bytes(8, "little")
        guards = crc32c.masked([length, record])
        first, second = (np.uint32(g).tobytes() for g in guards)
        self._file.write(b"".join((length, first, record, second)))

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self._file.close()
        self._raw.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


publish("unisono.io", TFRecordWriter)
