"""How files of records are compressed."""

from __future__ import annotations

import dataclasses
from typing import final

_COMPRESSIONS = (None, "", "GZIP", "ZLIB")


def check_compression(kind: object) -> str | None:
    """Returns the compression type, or None for no compression.

    Raises:
        ValueError: the type is unknown.
    """
    if kind not in _COMPRESSIONS:
        raise ValueError(
            f"Invalid compression_type {kind!r}: expected None, '', 'GZIP' or 'ZLIB'."
        )
    return kind or None


@final
@dataclasses.dataclass(frozen=True)
class TFRecordOptions:
    """How a `TFRecordWriter` compresses its file.

    Args:
        compression_type: None, "", "GZIP" or "ZLIB".
        flush_mode: accepted for TensorFlow's sake, as are all that follow but
            `compression_level`; any of them gives a file that is read alike.
        input_buffer_size: the bytes to compress at a time.
        output_buffer_size: the bytes to write at a time.
        window_bits: how far back repetitions are found.
        compression_level: from 0 to 9, the smallest file; None for the default.
        compression_method: how to compress.
        mem_level: how much memory to use.
        compression_strategy: how to find repetitions.

    Raises:
        ValueError: the compression is unknown, or there is no such level.

    >>> TFRecordOptions("GZIP", compression_level=9).compression_type
    'GZIP'
    """

    compression_type: str | None = None
    flush_mode: int | None = None
    input_buffer_size: int | None = None
    output_buffer_size: int | None = None
    window_bits: int | None = None
    compression_level: int | None = None
    compression_method: int | None = None
    mem_level: int | None = None
    compression_strategy: int | None = None

    def __post_init__(self) -> None:
        check_compression(self.compression_type)
        if self.compression_level not in (None, -1, *range(10)):
            raise ValueError(
                "compression_level must be None or from 0 to 9, received "
                f"{self.compression_level!r}."
            )
