"""`decode_csv`: lines with commas between fields, to a column for each field."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from unisono._src.foundation import dtypes, errors, host_numbers
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops.tensors import TensorLike
from unisono._src.ops.text import arrays, numbers
from unisono._src.ops.text.arrays import Given, TextLike

__all__ = ["decode_csv"]

TYPES = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.string)
# What `split` cannot cut: quoted fields, and line ends that may be within them.
_SPECIAL = re.compile(rb'["\r\n]')
# What readers of single fields do not know, or take for digits.
_UNCOMMON = re.compile(rb'["\r\n_]')
_LINE_ENDS = re.compile(rb"[\r\n]")


@final
class Column(NamedTuple):
    """A column.

    Attributes:
        dtype: its type.
        place: where it is among those that are decoded.
        default: the value of an empty field; None if there must be one.
    """

    dtype: np.dtype
    place: int
    default: Any


@final
class Decoder:
    """Decodes lines of one table.

    Args:
        defaults: for each column its type, or the value of an empty field, whose type
            it has; see `decode_csv`.
        delimiter: the character between fields.
        is_quoted: whether a field in double quotes may have any character.
        missing: a text that means an empty field, too.
        columns: the columns to decode, in rising order; None for all.
        blank: the fields of an empty line.

    Raises:
        InvalidArgumentError: an argument is wrong.
    """

    def __init__(
        self,
        defaults: Sequence[object],
        delimiter: str = ",",
        is_quoted: bool = True,
        missing: str | bytes = "",
        columns: Sequence[int] | None = None,
        blank: Sequence[bytes] = (),
    ) -> None:
        self._delimiter = delimiter.encode()
        if len(self._delimiter) != 1:
            raise errors.InvalidArgumentError(
                f"field_delim should be only 1 char, received {delimiter!r}."
            )
        if columns is not None and (
            len(columns) != len(defaults) or sorted({*columns}) != list(columns)
        ):
            raise errors.InvalidArgumentError(
                "select_cols must be as many as the defaults, in strictly increasing "
                f"order; received {columns} for {len(defaults)} defaults."
            )
        if any(c < 0 for c in columns or ()):
            raise errors.InvalidArgumentError("select_cols must be non-negative.")
        self._columns = columns
        self._is_quoted = is_quoted
        self._missing = missing.encode() if isinstance(missing, str) else missing
        self._width, self._blank = len(defaults), list(blank)
        mark = re.escape(self._delimiter)
        self._quoted = re.compile(rb'"((?:[^"]|"")*)"(?:' + mark + rb"|\Z)")
        self._refused = _SPECIAL if is_quoted else _LINE_ENDS
        found = [_read_default(x) for x in defaults]
        self._decoded = [
            Column(dtype, place, default)
            for place, (dtype, default) in enumerate(found)
        ]
        self._readers = [numbers.READERS[dtype] for dtype, _ in found]

    def decode_one(self, line: bytes) -> list[Any]:
        """Returns a number or text for each column; raises as `decode` does."""
        # The most frequent lines first: this runs for every line.
        row = line.split(self._delimiter)
        if (
            len(row) == self._width
            and self._columns is None
            and b"" not in row
            and self._missing not in row
            and not _UNCOMMON.search(line)
        ):
            with contextlib.suppress(ValueError, OverflowError):
                return [read(x) for read, x in zip(self._readers, row, strict=True)]
        row = self._split(line)
        if len(row) != self._width:
            self.decode([line])
        found = [
            self._convert([x], c)[0] for x, c in zip(row, self._decoded, strict=True)
        ]
        return list(map(host_numbers.to_host_number, found))

    def decode(self, lines: list[bytes]) -> list[np.ndarray]:
        """Returns a vector for each column.

        Raises:
            InvalidArgumentError: a line has another number of fields, a field is no
                number, or one is empty that may not be.
        """
        columns = self._cut(lines)
        return [
            self._convert(column, group)
            for column, group in zip(columns, self._decoded, strict=True)
        ]

    def _cut(self, lines: list[bytes]) -> list[list[bytes]]:
        """Returns the fields of each column.

        Raises:
            InvalidArgumentError: a line has another number of fields.
        """
        width, delimiter = self._width, self._delimiter
        # Without quotes and empty lines all of them are cut at once. A line feed, which
        # no line has, is a field between two of them: if it stands where it should, all
        # lines have as many fields.
        if self._columns is None and all(lines):
            text = (delimiter + b"\n" + delimiter).join(lines)
            fields = text.split(delimiter)
            ends = fields[width :: width + 1]
            if (
                len(fields) == len(lines) * (width + 1) - 1
                and ends.count(b"\n") == len(lines) - 1
                and text.count(b"\n") == len(lines) - 1
                and b'"' not in text
                and b"\r" not in text
            ):
                return [fields[c :: width + 1] for c in range(width)]
        rows = list(map(self._split, lines))
        for number, row in enumerate(rows):
            if len(row) != width:
                raise errors.InvalidArgumentError(
                    f"Expect {width} fields but have {len(row)} in record {number}: "
                    f"{lines[number]!r}."
                )
        return [[row[c] for row in rows] for c in range(width)]

    def _convert(self, texts: list[bytes], column: Column) -> np.ndarray:
        """Returns the fields of a column in its type."""
        dtype, place, default = column
        empty: list[int] = []
        if b"" in texts or self._missing in texts:
            empty = [i for i, x in enumerate(texts) if x in (b"", self._missing)]
        for i in empty:
            if default is None:
                raise errors.InvalidArgumentError(
                    f"Field {place} is required but missing in record {i}!"
                )
            texts[i] = b"0"
        if dtype == dtypes.string:
            found = arrays.fill(texts, (len(texts),))
        else:
            try:
                found = numbers.parse(texts, dtype)
            except ValueError:
                i = next(
                    i for i, x in enumerate(texts) if not numbers.is_number(x, dtype)
                )
                raise errors.InvalidArgumentError(
                    f"Field {place} in record {i} is not a valid {dtype}: {texts[i]!r}."
                ) from None
        if empty:
            found[empty] = default
        return found

    def _split(self, line: bytes) -> list[bytes]:
        """Returns the fields of the columns to decode, as far as the line has them."""
        columns = self._columns
        most = -1 if columns is None else columns[-1] + 1
        if _SPECIAL.search(line):
            parts = self._split_quoted(line, most)
        elif line:
            parts = line.split(self._delimiter, most)
        else:
            parts = self._blank
        if columns is None:
            return parts
        return [parts[c] for c in columns if c < len(parts)]

    def _split_quoted(self, line: bytes, most: int) -> list[bytes]:
        """Returns the fields of a line with quotes or line ends; at most `most`."""
        parts: list[bytes] = []
        at = 0
        while at < len(line) and len(parts) != most:
            if line[at] in b"\r\n":
                at += 1
            elif self._is_quoted and line[at] == ord('"'):
                field = self._quoted.match(line, at)
                if field is None:
                    raise errors.InvalidArgumentError(
                        "Quoted field has to end with quote followed by delim or end, "
                        "and a quote inside it has to be escaped by another quote; "
                        f"received {line!r}."
                    )
                parts.append(field[1].replace(b'""', b'"'))
                at = max(field.end(), field.end(1) + 2)
            else:
                end = line.find(self._delimiter, at) % (len(line) + 1)
                parts.append(line[at:end])
                if self._refused.search(parts[-1]):
                    raise errors.InvalidArgumentError(
                        "Unquoted fields cannot have quotes/CRLFs inside; received "
                        f"{line!r}."
                    )
                at = end + 1
        if len(parts) != most and line.endswith(self._delimiter):
            parts.append(b"")
        return parts


def _read_default(x: object) -> tuple[np.dtype, object]:
    """Returns the type of a column, and the value of an empty field or None.

    Raises:
        InvalidArgumentError: it is no type or value of a column.
    """
    if isinstance(x, np.dtype):
        dtype, value = x, None
    else:
        found: Any = elements.as_array(
            elements.to_array(arrays.known("io.decode_csv", x))
        )
        # TensorFlow's empty list is one of float32.
        is_untyped = found.size == 0 and found.dtype == dtypes.float64
        dtype = dtypes.float32 if is_untyped and isinstance(x, list) else found.dtype
        if found.ndim > 1 or found.size > 1:
            raise errors.InvalidArgumentError(
                f"Each record default should be at most one value, received {x!r}."
            )
        value = found.item() if found.size else None
    if dtype not in TYPES:
        raise errors.InvalidArgumentError(
            f"A column of type {dtype} cannot be decoded: it must be "
            f"{', '.join(map(str, TYPES[:-1]))} or string."
        )
    return dtype, value


# A function of `map` gives the same arguments for each line.
_decoders: dict[tuple[Any, ...], Decoder] = {}


@everyday_name("io.decode_csv")
def decode_csv(
    records: TextLike,
    record_defaults: Sequence[TensorLike | TextLike],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[Given]:
    """Decodes lines of CSV to an array for each column.

    Args:
        records: one line, or an array of lines.
        record_defaults: for each column, the value of an empty field. Its type is the
            type of the column: float32, float64, int32, int64 or string. An empty list
            or array means that empty fields are errors.
        field_delim: the character between fields.
        use_quote_delim: whether a field in double quotes may contain any character.
        na_value: a string that also means an empty field.
        select_cols: the columns to decode, in increasing order; None for all.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: a line has a wrong number of fields, or a field is not a
            valid number or is empty without a default.

    >>> decode_csv('1,"a, b",', [0, "", 2.5])
    [np.int32(1), b'a, b', np.float32(2.5)]
    """
    found = arrays.read("io.decode_csv", records)
    key = (
        repr(record_defaults), field_delim, use_quote_delim, na_value, repr(select_cols)
    )  # fmt: skip
    decoder = _decoders.get(key)
    if decoder is None:
        if len(_decoders) >= 256:
            _decoders.clear()
        decoder = _decoders[key] = Decoder(
            record_defaults, field_delim, use_quote_delim, na_value, select_cols
        )
    if isinstance(found, bytes):
        return decoder.decode_one(found)
    columns = decoder.decode(found.ravel().tolist())
    return [arrays.give(column.reshape(found.shape)) for column in columns]
