"""The records of CSV files: lines, of which quoted fields may have several."""

from __future__ import annotations

import itertools
from typing import final

from unisono._src.foundation import errors
from unisono._src.input.sources import files


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
