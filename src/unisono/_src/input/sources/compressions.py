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
    """Options for how a `TFRecordWriter` compresses its file.

    Args:
        compression_type: None, "", "GZIP" or "ZLIB".
        flush_mode: accepted and ignored.
        input_buffer_size: accepted and ignored.
        output_buffer_size: accepted and ignored.
        window_bits: accepted and ignored.
        compression_level: from 0 to 9, which gives the smallest file; None for the
            default.
        compression_method: accepted and ignored.
        mem_level: accepted and ignored.
        compression_strategy: accepted and ignored.

    Raises:
        ValueError: the compression type or the level is unknown.

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
