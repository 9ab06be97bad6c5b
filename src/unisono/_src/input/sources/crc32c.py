"""CRC-32C, the checksum of TFRecord files and of the files of saved datasets."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


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
