"""Files of text lines, TFRecords and records of fixed length: reading and writing."""

from __future__ import annotations

import abc
import gzip
import os
import zlib
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors, printable
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.sources import compressions


def masked_checksums(records: Iterable[bytes]) -> np.ndarray:
    """Returns the checksum of each record as TFRecord files store it.

    A TFRecord file holds the checksum rotated by 15 bits and with a constant added, so
    that a checksum over data which itself contains checksums stays meaningful.

    >>> [hex(c) for c in masked_checksums([b"123456789", b""])]
    ['0xc78ab0e5', '0xa282ead8']
    """
    import google_crc32c

    checksums = np.fromiter(map(google_crc32c.value, records), np.uint32)
    rotated = (checksums >> np.uint32(15)) | (checksums << np.uint32(17))
    return rotated + np.uint32(0xA282EAD8)


def checksum(*parts: bytes | np.ndarray) -> int:
    """Returns the checksum of some bytes, given in parts; arrays count as their bytes.

    >>> hex(checksum(b"12345", b"6789"))
    '0xe3069283'
    """
    import google_crc32c

    found: int = google_crc32c.value(parts[0])
    for part in parts[1:]:
        found = google_crc32c.extend(found, part)
    return found


# Bytes to read from a file at a time.
_CHUNK = 1 << 20
# A longer line is refused: the file is hardly text, and one without any line feed would
# fill the memory.
MAX_LINE_BYTES = 1 << 28


@final
class _ZlibReader:
    """Reads one or several zlib streams as an uncompressed file, front to back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj()
        self._begun = False

    def read(self, count: int) -> bytes:
        found: list[bytes] = []
        missing = count
        while missing:
            inflate = self._inflate
            # Behind the end of one stream another may begin.
            left = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            chunk = left or self._file.read(_CHUNK)
            if inflate.eof and chunk:
                inflate = self._inflate = zlib.decompressobj()
            self._begun = self._begun or bool(chunk)
            # Bounded: a few bytes may stand for gigabytes.
            found.append(inflate.decompress(chunk, missing))
            missing -= len(found[-1])
            if not chunk and not found[-1]:
                break
        if missing == count and self._begun and not self._inflate.eof:
            raise EOFError("the compressed data ends before its end mark")
        return b"".join(found)

    def close(self) -> None:
        self._file.close()


def open_file(path: str, compression: str | None) -> Any:
    """Returns a file to read from, uncompressed.

    Raises:
        NotFoundError: there is no such file.
    """
    try:
        if compression == "GZIP":
            return gzip.GzipFile(path, "rb")
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError as e:
        raise errors.NotFoundError(
            f"{printable.escape(path)}: No such file or directory."
        ) from e
    return _ZlibReader(file) if compression == "ZLIB" else file


@final
class Buffered:
    """A file with a window of bytes that were read and are not yet used.

    Attributes:
        offset: the position of the window in the uncompressed file.
        window: the bytes.
    """

    def __init__(self, path: str, compression: str | None, offset: int) -> None:
        # For messages.
        self.path = printable.escape(path)
        self._file = open_file(path, compression)
        self.offset = 0
        self.window = b""
        self._ended = False
        self._seek(offset, compression)

    def _seek(self, offset: int, compression: str | None) -> None:
        """Moves to an offset; a compressed file is read up to there."""
        if not compression and offset:
            self._file.seek(offset)
            self.offset = offset
            return
        while self.offset < offset:
            chunk = self.read_bytes(min(_CHUNK, offset - self.offset))
            if not chunk:
                raise errors.DataLossError(
                    f"{self.path} is shorter than the position {offset} at which "
                    "reading is to continue. Was it replaced? Continue with the same "
                    "file."
                )
            self.offset += len(chunk)

    def read_bytes(self, count: int) -> bytes:
        """Returns up to `count` bytes of the uncompressed file.

        Raises:
            DataLossError: the file is damaged.
        """
        try:
            found: bytes = self._file.read(count)
            return found
        except (OSError, EOFError, zlib.error) as e:
            raise errors.DataLossError(
                f"{self.path} is damaged near byte {self.offset}: {e}."
            ) from e

    def extend(self, needed: int = 0) -> bool:
        """Reads more into the window; returns False at the end of the file."""
        if self._ended:
            return False
        chunk = self.read_bytes(max(_CHUNK, needed))
        self._ended = not chunk
        self.window += chunk
        return bool(chunk)

    def extend_to_line(self) -> None:
        """Reads until a line feed is in the window, or to the end of the file.

        Raises:
            InvalidArgumentError: the line has more than `MAX_LINE_BYTES`.
        """
        if b"\n" in self.window:
            return
        # Each byte is looked at once, and copied once more at the end.
        found, size, at = [self.window], len(self.window), -1
        while at < 0 and size <= MAX_LINE_BYTES:
            chunk = b"" if self._ended else self.read_bytes(_CHUNK)
            if not chunk:
                self._ended = True
                break
            at = chunk.find(b"\n")
            found.append(chunk)
            size += len(chunk) if at < 0 else at
        if size > MAX_LINE_BYTES:
            raise errors.InvalidArgumentError(
                f"{self.path} has a line of more than {MAX_LINE_BYTES:,} bytes, at "
                f"byte {self.offset}. Is it a text file, its compression_type given? "
                "Cut the line, or read the file with FixedLengthRecordDataset or "
                "Dataset.from_generator."
            )
        self.window = b"".join(found)

    def drop(self, count: int) -> None:
        """Drops bytes from the front of the window."""
        self.window = self.window[count:]
        self.offset += count

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __del__(self) -> None:
        # An iterator may be dropped in the middle of a file. There is no `_file` if
        # opening it raised.
        if hasattr(self, "_file"):
            self.close()


class Reader(cursors.Cursor):
    """The records of several files, one file after the other; abstract."""

    def __init__(self, node: Files) -> None:
        self._node = node
        self._file = 0
        self._buffered: Buffered | None = None
        # Records are parsed in runs, as many as a window holds; a
        # position is an offset in the uncompressed file, so that
        # it does not depend on how files were cut into windows.
        # Records that were parsed, the offset behind each of them, and how many of them
        # were returned.
        self._ready: list[bytes] = []
        self._ends: list[int] = []
        self._given = 0
        # The offset of the first of these records.
        self._begin = 0

    @abc.abstractmethod
    def _records(self, file: Buffered) -> tuple[list[bytes], list[int]]:
        """Takes some records off the window; returns them and the ends of each."""

    def read(self, count: int) -> list[Any]:
        """Returns the next records."""
        found: list[Any] = []
        while len(found) < count and self._refill():
            stop = self._given + count - len(found)
            found.extend(self._ready[self._given : stop])
            self._given = min(stop, len(self._ready))
        return found

    def skip(self, count: int) -> int:
        """Skips records, which are parsed but not returned."""
        passed = 0
        while passed < count and self._refill():
            step = min(count - passed, len(self._ready) - self._given)
            self._given += step
            passed += step
        return passed

    def _refill(self) -> bool:
        """Parses more records if none is left; returns False after the last file."""
        while self._given >= len(self._ready):
            if self._file >= len(self._node.files):
                return False
            if self._buffered is None:
                self._open(0)
            assert self._buffered is not None
            self._ready, self._ends, self._given = [], [], 0
            try:
                self._ready, self._ends = self._records(self._buffered)
            except errors.OpError:
                # Where the next record would begin is not known. As in TensorFlow,
                # the next read begins with the next file.
                self._leave()
                raise
            if not self._ready:
                self._leave()
        return True

    def _open(self, offset: int) -> None:
        """Opens the present file at an offset."""
        path = self._node.files[self._file]
        self._buffered = Buffered(path, self._node.compression, offset)
        self._begin = offset

    def _leave(self) -> None:
        """Closes the present file and moves to the next."""
        if self._buffered is not None:
            self._buffered.close()
        self._buffered = None
        self._file += 1
        self._begin = 0

    def get_state(self) -> dict[str, Any]:
        """Returns the number of the file and the offset in it."""
        offset = self._ends[self._given - 1] if self._given else self._first_offset()
        return {"file": self._file, "offset": offset}

    def _first_offset(self) -> int:
        """Returns the offset of the first record that was parsed."""
        if self._ready:
            return self._begin
        return self._buffered.offset if self._buffered is not None else 0

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues in a file at an offset."""
        self.close()
        self._ready, self._ends, self._given = [], [], 0
        self._file = state["file"]
        if self._file < len(self._node.files) and state["offset"]:
            self._open(state["offset"])

    def close(self) -> None:
        """Closes the file."""
        if self._buffered is not None:
            self._buffered.close()
            self._buffered = None

    def _note_begin(self, file: Buffered, ends: list[int]) -> list[int]:
        """Notes where this run of records begins; returns their ends in the file."""
        self._begin = file.offset
        return [file.offset + end for end in ends]


@final
class _TextLines(Reader):
    """The lines of text files, without their line ends."""

    def _records(self, file: Buffered) -> tuple[list[bytes], list[int]]:
        # A line may be longer than a chunk.
        file.extend_to_line()
        # The last line of a file may lack its line feed.
        cut = file.window.rfind(b"\n") + 1 or len(file.window)
        chunk = file.window[:cut]
        lines = chunk.split(b"\n")
        if chunk.endswith(b"\n"):
            lines.pop()
        elif not cut:
            lines = []
        ends = self._note_begin(file, _ends_of_lines(lines, cut))
        file.drop(cut)
        # TensorFlow removes every carriage return, not only one before a line feed.
        if b"\r" in chunk:
            lines = [line.replace(b"\r", b"") for line in lines]
        return lines, ends


def _ends_of_lines(lines: list[bytes], cut: int) -> list[int]:
    """Returns the offset behind each line; the last line may lack its line feed."""
    ends: list[int] = np.cumsum([len(line) + 1 for line in lines]).tolist()
    if ends:
        ends[-1] = cut
    return ends


@final
class _TFRecords(Reader):
    """The records of TFRecord files.

    A record is its length (8 bytes), the checksum of the length (4), the data, and the
    checksum of the data (4).
    """

    def _records(self, file: Buffered) -> tuple[list[bytes], list[int]]:
        if not file.window:
            file.extend()
        records: list[bytes] = []
        ends: list[int] = []
        while not records and file.window:
            records, ends, needed = self._parse(file)
            # A record may be longer than the window.
            if not records and not file.extend(needed):
                raise errors.DataLossError(
                    f"{file.path}: truncated record at byte {file.offset}: the file "
                    f"ends {needed} bytes before the record does."
                )
        found = self._note_begin(file, ends)
        file.drop(ends[-1] if ends else 0)
        return records, found

    def _parse(self, file: Buffered) -> tuple[list[bytes], list[int], int]:
        """Returns the complete records of the window, their ends, and missing bytes.

        The number of missing bytes is that of the first record, if it is incomplete.
        """
        window, at = file.window, 0
        headers: list[bytes] = []
        starts: list[int] = []
        sizes: list[int] = []
        needed = 0
        while at < len(window):
            header = window[at : at + 12]
            size = int.from_bytes(header[:8], "little") if len(header) == 12 else 0
            # Eight bytes of length, four and four of checksums.
            end = at + 16 + size
            if end > len(window):
                needed = end - len(window)
                break
            headers.append(header)
            starts.append(at)
            sizes.append(size)
            at = end
        if not headers and needed and len(window) >= 12:
            # Check the length before reading that far: a damaged one may be huge.
            self._check(file, [window[:12]], [0], [window[:8]], "length")
        if not headers:
            return [], [], needed
        # First all lengths, then all data: each check is one call over many records.
        good = self._check(file, headers, starts, [h[:8] for h in headers], "length")
        starts, sizes = starts[:good], sizes[:good]
        # Not `strict`: this runs for every record, and the lists have one length.
        records = [window[s + 12 : s + 12 + n] for s, n in zip(starts, sizes)]  # noqa: B905
        tails = [window[s + 12 + n : s + 16 + n] for s, n in zip(starts, sizes)]  # noqa: B905
        # `_check` takes the checksum from behind eight bytes, as in a header.
        guards = [b"\0" * 8 + t for t in tails]
        good = self._check(file, guards, starts, records, "data")
        ends = [s + 16 + n for s, n in zip(starts, sizes)]  # noqa: B905
        return records[:good], ends[:good], 0

    def _check(
        self, file: Buffered, headers: Any, starts: Any, guarded: Any, what: str
    ) -> int:
        """Returns how many records have the right checksum before the first wrong one.

        Raises:
            DataLossError: the first record is wrong. If a later one is, those before it
                are returned first, and the wrong one raises at the next call.
        """
        told = np.frombuffer(b"".join(h[8:12] for h in headers), "<u4")
        wrong = masked_checksums(guarded) != told
        if not wrong.any():
            return len(wrong)
        number = int(np.argmax(wrong))
        if number:
            return number
        raise errors.DataLossError(
            f"{file.path}: corrupted record at byte {file.offset + starts[0]}: the "
            f"checksum of its {what} does not match. The file is damaged, or is no "
            f"TFRecord file{'' if self._node.compression else ', or is compressed'}."
        )


@final
class _Fixed(Reader):
    """The records of files in which all records have the same length."""

    def _records(self, file: Buffered) -> tuple[list[bytes], list[int]]:
        node = self._node
        size, header, footer = node.layout
        if file.offset == 0 and header:
            while (missing := header - len(file.window)) > 0 and file.extend(missing):
                pass
            if len(file.window) < header:
                raise errors.InvalidArgumentError(
                    f"{file.path} has {len(file.window)} bytes, which is less than its "
                    f"header of {header} bytes. Check header_bytes."
                )
            file.drop(header)
        whole = size + footer
        while (missing := whole - len(file.window)) > 0 and file.extend(missing):
            pass
        # The last bytes of the window may be the footer, which is no record.
        count = max(0, len(file.window) - footer) // size
        if not count and len(file.window) > footer:
            raise errors.InvalidArgumentError(
                f"{file.path}: excess of {len(file.window) - footer} bytes at byte "
                f"{file.offset}: records have {size} bytes. Check record_bytes, "
                "header_bytes and footer_bytes."
            )
        ends = [size * (i + 1) for i in range(count)]
        records = [file.window[e - size : e] for e in ends]
        found = self._note_begin(file, ends)
        file.drop(size * count)
        return records, found


# `csv_datasets` adds its own.
READERS: dict[str, Callable[[Files], Reader]] = {
    "TextLine": _TextLines,
    "TFRecord": _TFRecords,
    "FixedLengthRecord": _Fixed,
}


@final
class Files(nodes.Node):
    """A source of the records of files.

    Attributes:
        kind: the format: "TextLine", "TFRecord", "FixedLengthRecord" or "Csv".
        files: the paths.
        compression: "GZIP", "ZLIB" or None.
        layout: for records of fixed length, the bytes of a record, of the header and of
            the footer; `csv_datasets` says what it is there.
    """

    kind: str
    files: tuple[str, ...]
    compression: str | None = None
    layout: tuple[int, int, int] = (0, 0, 0)
    cardinality = nodes.UNKNOWN
    # `bytes` cannot be changed, so it does not matter who else holds them.
    makes_new = True

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over the records, file after file."""
        return READERS[self.kind](self)

    def _spec(self) -> elements.Spec:
        return specs.TensorSpec((), object)

    def __str__(self) -> str:
        return f"{self.kind}({len(self.files)} files)"


def path_of(name: Any) -> str:
    """Returns a path from text, bytes, an array of one of them, or a path object."""
    if isinstance(name, (np.ndarray, np.generic)):
        name = name.item()
    return os.fsdecode(name)


@final
class _ZlibWriter:
    """A file to write to whose content zlib compresses."""

    def __init__(self, file: BinaryIO, level: int) -> None:
        self._file, self._deflate = file, zlib.compressobj(level)

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
        options: the compression: None, "", "GZIP", "ZLIB", or a `TFRecordOptions`.

    Raises:
        ValueError: `options` is an unknown compression.

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
        options: str | compressions.TFRecordOptions | None = None,
    ) -> None:
        if not isinstance(options, compressions.TFRecordOptions):
            options = compressions.TFRecordOptions(options)
        kind, level = options.compression_type, options.compression_level
        level = zlib.Z_DEFAULT_COMPRESSION if level is None else level
        raw = open(path_of(path), "wb")  # noqa: SIM115
        self._raw = raw
        self._file: Any = raw
        if kind == "GZIP":
            self._file = gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=level)
        elif kind == "ZLIB":
            self._file = _ZlibWriter(raw, level)

    def write(self, record: bytes | str) -> None:
        """Appends one record.

        Args:
            record: the bytes of the record; text is encoded in UTF-8.

        Raises:
            TypeError: `record` is neither bytes nor text.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "records")
        >>> with TFRecordWriter(path) as writer:
        ...     writer.write(b"abc")
        >>> os.path.getsize(path)  # The length, the data and two checksums.
        19
        """
        if isinstance(record, str):
            record = record.encode()
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"A record must be bytes, received {type(record).__name__}. "
                "Encode it first."
            )
        record = bytes(record)
        length = len(record).to_bytes(8, "little")
        guards = masked_checksums([length, record])
        first, second = (np.uint32(g).tobytes() for g in guards)
        self._file.write(b"".join((length, first, record, second)))

    def flush(self) -> None:
        """Flushes everything that was written to the operating system.

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

    def __exit__(self, *exc: object) -> None:
        self.close()
