"""Text files that begin with the SHA-256 of the rest, and strict parsing of JSON."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from typing import Any

from unisono._src.foundation import errors

# The limit for one such file. Arrays are stored in other files.
MAX_BYTES = 1 << 28


def damage_error(path: pathlib.Path, why: object) -> errors.DataLossError:
    """Returns the error to raise for a damaged file."""
    return errors.DataLossError(f"The checkpoint file {path} is damaged: {why}.")


def write(path: pathlib.Path, rest: bytes) -> None:
    """Writes a new file and flushes it to the disk.

    Raises:
        SaveError: `rest` is longer than `MAX_BYTES`.
    """
    if len(rest) > MAX_BYTES:
        raise errors.SaveError(
            f"The plain data of the checkpoint takes {len(rest):,} bytes; the limit is "
            f"{MAX_BYTES:,}. Keep large state in variables or arrays."
        )
    with open(path, "xb") as file:
        file.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        file.flush()
        os.fsync(file.fileno())


def read(path: pathlib.Path) -> tuple[str, bytes]:
    """Returns the digest and the rest of a file, after comparing the two.

    Raises:
        DataLossError: the digest does not match, or the file is too large.
        FileNotFoundError: there is no such file, or it is a link.
    """
    if path.is_symlink() or not path.is_file():
        raise FileNotFoundError(path)
    # The digest and its newline take 65 bytes.
    if path.stat().st_size > MAX_BYTES + 100:
        raise damage_error(path, f"it is larger than {MAX_BYTES:,} bytes")
    digest, _, rest = path.read_bytes().partition(b"\n")
    if digest != hashlib.sha256(rest).hexdigest().encode():
        raise damage_error(path, "its checksum does not match its contents")
    return digest.decode(), rest


def parse_json(path: pathlib.Path, text: bytes) -> Any:
    """Parses JSON and refuses duplicate keys, NaN and infinity.

    Args:
        path: the file that the text comes from, for messages.
        text: the JSON.

    Raises:
        DataLossError: the text is not such JSON.
    """

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"the key {key[:80]!r} is there twice")
            found[key] = value
        return found

    def refuse_constant(constant: str) -> Any:
        raise ValueError(f"{constant} is not a number")

    try:
        return json.loads(
            text, object_pairs_hook=refuse_duplicates, parse_constant=refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise damage_error(path, error) from error
