"""`TFRecordWriter`, which writes the files that `TFRecordDataset` reads."""

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
    """A file to write to whose content zlib compresses."""

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
    """Writes records to a TFRecord file; a context manager that closes the file.

    Args:
        path: the file; an existing one is replaced.
        options: the compression: None, "", "GZIP" or "ZLIB".

    Raises:
        ValueError: `options` is another compression.

    >>> import os, tempfile, unisono
    >>> path = os.path.join(tempfile.mkdtemp(), "records")
    >>> with unisono.io.TFRecordWriter(path) as writer:
    ...     writer.write(b"first")
    ...     writer.write(b"second")
    >>> [record.numpy() for record in unisono.data.TFRecordDataset(path)]
    [b'first', b'second']
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
        """Appends one record.

        Args:
            record: the bytes of the record.

        Raises:
            TypeError: `record` is not bytes.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "records")
        >>> with TFRecordWriter(path) as writer:
        ...     writer.write(b"abc")
        >>> os.path.getsize(path)  # The length, the data and two checksums.
        19
        """
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"A record must be bytes, received {type(record).__name__}. "
                "Encode it first."
            )
        record = bytes(record)
        length = len(record).to_bytes(8, "little")
        guards = crc32c.masked_checksums([length, record])
        first, second = (np.uint32(g).tobytes() for g in guards)
        self._file.write(b"".join((length, first, record, second)))

    def flush(self) -> None:
        """Hands everything that was written to the operating system.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "records")
        >>> writer = TFRecordWriter(path)
        >>> writer.write(b"abc")
        >>> writer.flush()
        >>> os.path.getsize(path)
        19
        >>> writer.close()
        """
        self._file.flush()

    def close(self) -> None:
        """Completes and closes the file; nothing can be written afterwards.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "records")
        >>> writer = TFRecordWriter(path, "GZIP")
        >>> writer.write(b"abc" * 1000)
        >>> writer.close()
        >>> os.path.getsize(path) < 200
        True
        """
        # `GzipFile` writes its end when it closes, and leaves the file below open.
        self._file.close()
        self._raw.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


publish("unisono.io", TFRecordWriter)
