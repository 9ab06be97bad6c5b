"""The files of a checkpoint: their checksums, their verification, their flushing."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import stat
import types
import zlib
from collections.abc import Iterator, Mapping

from unisono._src.foundation import errors
from unisono._src.saving.format import manifest, signed_text
from unisono._src.saving.format.manifest import File, Manifest

_CHUNK_BYTES = 1 << 20
_THREADS = min(4, os.cpu_count() or 1)


def checksum(path: pathlib.Path) -> File:
    """Returns size and CRC-32 of a file."""
    crc = size = 0
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    # Straight into the one buffer, without Python's own in between.
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
            size += count
    return File(size, crc)


def list_files(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields every file below a directory, in the order of names.

    Raises:
        DataLossError: there is something that is neither a file nor a directory, such
            as a link.
    """
    for name in sorted(os.listdir(directory)):
        path = directory / name
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from list_files(path)
        elif stat.S_ISREG(mode):
            yield path
        else:
            raise signed_text.damage_error(path, "it is not a regular file")


def checksums(
    directory: pathlib.Path, known: Mapping[str, File] = types.MappingProxyType({})
) -> dict[str, File]:
    """Returns the checksum of every file below a directory, by relative path.

    Args:
        directory: the directory.
        known: checksums that others have found; these files are not read.
    """
    every = [p.relative_to(directory).as_posix() for p in list_files(directory)]
    names = [name for name in every if name not in known]
    paths = [directory / name for name in names]
    try:
        # `zlib.crc32` releases the interpreter lock, so threads do help.
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(checksum, paths))
    except RuntimeError:  # A program that is ending can start no threads.
        found = [checksum(path) for path in paths]
    made = dict(zip(names, found, strict=True))
    return {name: made[name] if name in made else known[name] for name in every}


def verify(directory: pathlib.Path, found: Manifest) -> None:
    """Compares the files of a checkpoint with its manifest.

    Raises:
        DataLossError: a file is missing, changed or unknown; the message names it.
    """
    try:
        have = checksums(directory)
    except OSError as error:
        where = error.filename or directory
        raise errors.DataLossError(
            f"The checkpoint file {where} cannot be read: {error.strerror}."
        ) from error
    have.pop(manifest.NAME, None)
    for name, want in found.files.items():
        if name not in have:
            raise signed_text.damage_error(directory / name, "it is missing")
        got = have.pop(name)
        if got.size != want.size:
            why = f"it has {got.size:,} bytes instead of {want.size:,}"
            raise signed_text.damage_error(directory / name, why)
        if got != want:
            why = "its checksum does not match its contents"
            raise signed_text.damage_error(directory / name, why)
    for name in have:
        raise signed_text.damage_error(
            directory / name, "it is not part of the checkpoint"
        )


def read_verified(directory: pathlib.Path) -> Manifest:
    """Returns the manifest of a checkpoint after verifying every file.

    Raises:
        DataLossError: a file is damaged.
        NotFoundError: there is no checkpoint.
    """
    found = manifest.read(directory)
    verify(directory, found)
    return found


def flush(directory: pathlib.Path) -> None:
    """Flushes a directory and everything below it to the disk."""
    folders = {directory}
    for path in list_files(directory):
        folders.add(path.parent)
        flush_one(path)
    # Inner directories before outer ones: a name is safe only after its contents are.
    for folder in sorted(folders, reverse=True):
        flush_one(folder)


def flush_one(path: pathlib.Path) -> None:
    """Flushes one file or directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
