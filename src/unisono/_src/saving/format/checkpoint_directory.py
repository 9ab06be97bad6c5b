"""Checkpoints side by side in a directory: committing, ordering, finding the latest.

A checkpoint is written under a hidden name and appears under its own by one rename.
The hidden directory is locked while its writer lives, so that what a killed process
left behind can be told from what another one is writing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import pathlib
import secrets
import shutil
import time
import warnings
from collections.abc import Callable, Iterator

from unisono._src.foundation import errors
from unisono._src.saving.format import checksummed_files, manifest

_HIDDEN_PREFIX = ".unisono-"
# A directory with one of these is a checkpoint or an exported model.
MARKER_FILES = (manifest.NAME, "saved_model.json")
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class Draft:
    """A checkpoint being written; call `commit` or `discard`.

    Args:
        target: the path under which it will appear.
    """

    def __init__(self, target: pathlib.Path) -> None:
        self.target = target
        target.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self.directory = _hidden_path(target)
            self.directory.mkdir()
            self._lock = os.open(self.directory, os.O_RDONLY)
            with contextlib.suppress(OSError):
                # Without locks nobody can tell that we are gone, and nobody tries.
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.directory.exists():
                break
            os.close(self._lock)  # Swept away before it was locked.

    def commit(self) -> None:
        """Make it visible; all of it has been flushed.

        Raises:
            FileExistsError: something else is there, which is not ours to remove.
        """
        check_free(self.target)
        if self.target.is_dir():
            self._replace()
        else:
            os.rename(self.directory, self.target)
        checksummed_files.flush_one(self.target.parent)
        os.close(self._lock)

    def _replace(self) -> None:
        try:
            _exchange(self.directory, self.target)
            old = self.directory
        except OSError:
            # This file system cannot exchange two names in one step.
            old = _hidden_path(self.target)
            os.rename(self.target, old)
            os.rename(self.directory, self.target)
        remove(old)

    def discard(self) -> None:
        """Remove what has been written; nothing was visible."""
        os.close(self._lock)
        shutil.rmtree(self.directory, ignore_errors=True)


def check_free(target: pathlib.Path) -> None:
    """Raise if there is something that a checkpoint must not replace.

    Raises:
        FileExistsError: a link, a file, or a directory with other things in it.
    """
    if not target.is_symlink() and not target.exists():
        return
    is_ours = any((target / name).is_file() for name in MARKER_FILES)
    if target.is_symlink() or not (target.is_dir() and (is_ours or _is_empty(target))):
        raise FileExistsError(
            errno.EEXIST, "there is something else under this name", str(target)
        )


def _is_empty(directory: pathlib.Path) -> bool:
    return next(directory.iterdir(), None) is None


def _hidden_path(target: pathlib.Path) -> pathlib.Path:
    return target.parent / f"{_HIDDEN_PREFIX}{secrets.token_hex(6)}-{target.name}"


def _exchange(a: pathlib.Path, b: pathlib.Path) -> None:
    """Exchange two names in one step.

    Raises:
        OSError: this system or file system cannot.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, "no renameat2")
    if (
        call(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE)
        != 0
    ):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def remove(path: pathlib.Path) -> None:
    """Remove a checkpoint: hidden first, so that no half of it is ever offered."""
    hidden = path if path.name.startswith(_HIDDEN_PREFIX) else _hidden_path(path)
    try:
        if hidden != path:
            os.rename(path, hidden)
        shutil.rmtree(hidden)
    except FileNotFoundError:
        pass
    except OSError as error:
        warnings.warn(
            f"The old checkpoint {path} could not be removed: {error}.", stacklevel=2
        )


def sweep(directory: pathlib.Path) -> None:
    """Remove what writers that no longer live have left in a directory."""
    for path in directory.glob(f"{_HIDDEN_PREFIX}*"):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # Its writer lives, or nobody can tell.
        finally:
            os.close(handle)


def _headers(
    directory: pathlib.Path, is_quiet: bool = False
) -> Iterator[tuple[pathlib.Path, manifest.Header]]:
    """Every committed checkpoint, not verified."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = directory / name
        if name.startswith(_HIDDEN_PREFIX) or not (path / manifest.NAME).is_file():
            continue
        try:
            yield path, manifest.read_header(path)
        except (errors.DataLossError, OSError) as error:
            if not is_quiet:
                _warn_skipped(path, error)


def _warn_skipped(path: pathlib.Path, error: Exception) -> None:
    warnings.warn(
        f"The checkpoint {path} is not usable and was passed over: {error}",
        stacklevel=4,
    )


def steps(directory: pathlib.Path) -> list[tuple[pathlib.Path, manifest.Header]]:
    """The checkpoints that `save` has made in a directory, oldest first."""
    found = [(p, h) for p, h in _headers(directory) if h.is_step]
    return sorted(found, key=lambda pair: pair[1].saved_at)


def find_latest(
    directory: pathlib.Path, is_wanted: Callable[[pathlib.Path], bool] | None = None
) -> pathlib.Path | None:
    """The newest checkpoint all of whose files are whole, or None.

    Damaged ones are passed over, each with a warning that names the file.

    Args:
        directory: where to look.
        is_wanted: which of the checkpoints there to look at; default all.
    """
    for path, _ in reversed(steps(directory)):
        if is_wanted is not None and not is_wanted(path):
            continue
        try:
            checksummed_files.read_verified(path)
        except (errors.DataLossError, errors.NotFoundError) as error:
            _warn_skipped(path, error)
            continue
        return path
    return None


def next_save_time(directory: pathlib.Path) -> int:
    """Now, or a little after the newest checkpoint if its clock was ahead of ours."""
    newest = max((h.saved_at for _, h in _headers(directory, True)), default=0)
    return max(time.time_ns(), newest + 1)
