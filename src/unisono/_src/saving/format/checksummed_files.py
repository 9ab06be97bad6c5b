"""The files of a checkpoint: their checksums, their verification, their flushing."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import stat
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from unisono._src.foundation import errors
from unisono._src.saving.format import crc32, manifest, signed_text
from unisono._src.saving.format.manifest import File, Manifest

_CHUNK_BYTES = 1 << 20
# A thread takes the checksum of so many bytes, which are put together in the end.
_RANGE_BYTES = 1 << 24
_THREADS = min(16, os.cpu_count() or 1)

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def checksum(path: pathlib.Path) -> File:
    """Returns size and CRC-32 of a file."""
    return checksum_ranges([(path, 0, None)])[0]


def checksum_ranges(
    ranges: Sequence[tuple[pathlib.Path, int, int | None]],
) -> list[File]:
    """Returns size and CRC-32 of ranges of files, found by several threads.

    Args:
        ranges: for each the file, where it begins, and its number of bytes; None for
            all that follow.
    """
    pieces: list[tuple[pathlib.Path, int, int]] = []
    counts = []
    for path, begin, size in ranges:
        end = path.stat().st_size if size is None else begin + size
        starts = range(begin, end, _RANGE_BYTES)
        pieces += [(path, at, min(_RANGE_BYTES, end - at)) for at in starts]
        counts.append(len(starts))
    # `zlib.crc32` releases the interpreter lock, so threads do help.
    found = iter(run_in_threads(lambda piece: _read_piece(*piece), pieces))
    return [join(next(found) for _ in range(count)) for count in counts]


def _read_piece(path: pathlib.Path, begin: int, size: int) -> File:
    """Returns size and CRC-32 of bytes of a file, of which some may be missing."""
    crc = done = 0
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, size)))
    # Straight into the one buffer, without Python's own in between.
    with open(path, "rb", buffering=0) as file:
        file.seek(begin)
        while done < size and (count := file.readinto(buffer[: size - done])):
            crc = zlib.crc32(buffer[:count], crc)
            done += count
    return File(done, crc)


def join(parts: Iterable[File]) -> File:
    """Returns size and CRC-32 of parts of a file that follow each other."""
    size = crc = 0
    for part in parts:
        crc = crc32.combine(crc, part.crc32, part.size)
        size += part.size
    return File(size, crc)


def run_in_threads(call: Callable[[_In], _Out], given: Sequence[_In]) -> list[_Out]:
    """Returns the results of a function for each of some arguments."""
    if len(given) < 2:
        return list(map(call, given))
    try:
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(call, given))
    except RuntimeError:  # A program that is ending can start no threads.
        return list(map(call, given))


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
    found = checksum_ranges([(directory / name, 0, None) for name in names])
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
    files = list(list_files(directory))
    # Together: a disk has the files of all of them to write.
    run_in_threads(flush_one, files)
    folders = {directory, *(path.parent for path in files)}
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
