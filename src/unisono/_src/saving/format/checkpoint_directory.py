"""Directories of checkpoints: how one is committed, and which is the latest.

A checkpoint is written to a hidden directory, which one rename makes visible. The
writer holds a lock on the hidden directory for as long as it lives, and a reader holds
one on what it reads. A hidden directory without a lock is therefore the leftover of a
killed process, or a version that nobody reads any more, and can be removed.
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
from typing import ClassVar, final

from unisono._src.foundation import errors
from unisono._src.saving.format import checksummed_files, manifest, one_version
from unisono._src.saving.format.one_version import HIDDEN_PREFIX as _HIDDEN_PREFIX

# A directory with one of these files is a checkpoint or an exported model.
MARKER_FILES = (manifest.NAME, "saved_model.json")
# Linux's constants for `renameat2`: exchange two names; paths relative to where we are.
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
# How often `find_latest` lists a directory whose checkpoints are removed meanwhile.
_MOST_LOOKS = 20


@final
class StagingDirectory:
    """A hidden directory in which a checkpoint is written.

    Begin a `try` statement, call `open` in it, and `close` in its `finally` clause, so
    that an interrupt at any moment leaves nothing behind.

    Args:
        target: the path under which the checkpoint will appear.

    Attributes:
        target: the path.
        directory: the hidden directory; after `commit`, the version that was replaced.
    """

    def __init__(self, target: pathlib.Path) -> None:
        self.target = target
        self.directory = _hidden_path(target)
        self._lock = -1

    def open(self) -> None:
        """Makes the hidden directory."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        # Another process or thread may sweep the directory before it has its lock.
        while not self._make():
            # Another name: a second sweep may still remove what has the first one.
            self.directory = _hidden_path(self.target)

    def _make(self) -> bool:
        """Makes the hidden directory and locks it; False if it was swept away."""
        self.directory.mkdir()
        try:
            self._lock = os.open(self.directory, os.O_RDONLY)
        except FileNotFoundError:
            return False
        with contextlib.suppress(OSError):
            # Some file systems have no locks. `sweep` cannot lock there either and
            # leaves every hidden directory alone.
            # It waits for a sweep that has locked the new directory.
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self.directory.exists():
            return True
        self._unlock()
        return False

    def commit(self) -> None:
        """Makes the checkpoint visible under its own name.

        Every file must have been flushed to the disk before.

        Raises:
            FileExistsError: the target is something other than a checkpoint.
        """
        check_free(self.target)
        if self.target.is_dir():
            self._replace()
        else:
            os.rename(self.directory, self.target)
        # Readers wait for this lock, and what follows takes time.
        self._unlock()
        checksummed_files.flush_one(self.target.parent)

    def _replace(self) -> None:
        """Exchanges the new and the older checkpoint."""
        try:
            _exchange(self.directory, self.target)
        except OSError:
            # This file system cannot exchange two names in one step. Between the
            # renames there is no checkpoint under the name; both copies are on disk.
            aside = _hidden_path(self.target)
            os.rename(self.target, aside)
            os.rename(self.directory, self.target)
            # The older version has the hidden name now, which `close` removes.
            os.rename(aside, self.directory)

    def close(self) -> None:
        """Removes the hidden directory, with the new or the older version."""
        try:
            self._unlock()
            remove(self.directory)
        except BaseException:
            # Interrupted. The rest is removed as well, and then the program goes on
            # with what interrupted it.
            remove(self.directory)
            raise

    def _unlock(self) -> None:
        handle, self._lock = self._lock, -1
        if handle >= 0:
            os.close(handle)


def check_free(target: pathlib.Path) -> None:
    """Raises if the target exists and is not a checkpoint or an empty directory.

    Raises:
        FileExistsError: the target is a link, a file, or a directory that holds
            something else.
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
    """Returns a new hidden name next to a target, on the same file system."""
    return target.parent / f"{_HIDDEN_PREFIX}{secrets.token_hex(6)}-{target.name}"


def _exchange(a: pathlib.Path, b: pathlib.Path) -> None:
    """Exchanges two names in one step.

    Raises:
        OSError: the system or the file system has no such call.
    """
    # Python has no function for it, so the call goes to the C library.
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
    """Removes a checkpoint; a warning says so if that is impossible.

    The checkpoint is renamed to a hidden name first, so that nobody ever finds half
    of one. If it is being read, it stays there under that name until the next sweep.
    """
    hidden = path if path.name.startswith(_HIDDEN_PREFIX) else _hidden_path(path)
    try:
        if hidden != path:
            os.rename(path, hidden)
        # A reader that opened it under its old name still holds it.
        with _lock(hidden) as is_free:
            if is_free:
                shutil.rmtree(hidden)
    except FileNotFoundError:
        pass
    except OSError as error:
        warnings.warn(
            f"The old checkpoint {path} could not be removed: {error}.", stacklevel=2
        )


@contextlib.contextmanager
def _lock(path: pathlib.Path) -> Iterator[bool]:
    """Locks a directory during a block; yields whether nobody else had locked it.

    Where the file system has no locks, it counts as free.

    Raises:
        OSError: there is no such directory.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except OSError as error:
            is_free = error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
        yield is_free
    finally:
        os.close(handle)


def sweep(directory: pathlib.Path) -> None:
    """Removes the hidden directories that nobody writes or reads any more."""
    for path in directory.glob(f"{_HIDDEN_PREFIX}*"):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # Somebody holds the lock, or the file system has no locks.
        finally:
            os.close(handle)


@final
class _ThisJob:
    """The identity of this process among those that save, and the checkpoints it saw.

    Attributes:
        name: a random name, which every checkpoint that this process saves has.
        began: when the process began, in nanoseconds since 1970.
        seen: for some directories, when the newest checkpoint had been saved that was
            there when this process restored one of them.
    """

    name = secrets.token_hex(8)
    began = time.time_ns()
    seen: ClassVar[dict[pathlib.Path, int]] = {}


def note_seen(directory: pathlib.Path) -> None:
    """Records that this process goes on from the checkpoints that are there now."""
    _ThisJob.seen[directory] = _find_newest_time(directory)


def check_alone(target: pathlib.Path) -> None:
    """Raises if another job has saved next to a target while this one runs.

    Such checkpoints have the target's name but for the number at its end.

    Raises:
        SaveError: another job has.
    """
    # Older checkpoints are of a run before, and those that were there when this one
    # restored are what it goes on from.
    known = max(_ThisJob.began, _ThisJob.seen.get(target.parent, 0))
    stem = target.name.rpartition("-")[0]
    for path, header in _headers(target.parent, is_quiet=True):
        is_alike = header.is_step and path.name.rpartition("-")[0] == stem
        if is_alike and header.saved_at > known and header.job != _ThisJob.name:
            raise errors.SaveError(
                f"The checkpoint {target} was not written, because another job has "
                f"saved {path} while this one runs. Give each job a directory of its "
                "own. To go on from the other job's checkpoint, restore it first."
            )


def new_header(target: pathlib.Path, is_step: bool) -> manifest.Header:
    """Returns the header of a checkpoint that this process saves now."""
    number = target.name.rpartition("-")[2]
    return manifest.Header(
        _next_save_time(target.parent),
        is_step,
        int(number) if number.isdecimal() else None,
        _ThisJob.name,
    )


def _headers(
    directory: pathlib.Path, is_quiet: bool = False
) -> Iterator[tuple[pathlib.Path, manifest.Header]]:
    """Yields path and header of every committed checkpoint, without verifying it."""
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
            # One that is gone was removed since, by a manager for instance.
            if not is_quiet and path.exists():
                _warn_skipped(path, error)


def _warn_skipped(path: pathlib.Path, error: Exception) -> None:
    warnings.warn(
        f"The checkpoint {path} is not usable and was passed over: {error}",
        # The line of the program that asked for the latest checkpoint.
        stacklevel=4,
    )


def list_steps(directory: pathlib.Path) -> list[tuple[pathlib.Path, manifest.Header]]:
    """Returns the checkpoints that `save` has made in a directory, oldest first."""
    found = [(p, h) for p, h in _headers(directory) if h.is_step]
    return sorted(found, key=lambda pair: pair[1].saved_at)


def find_latest(
    directory: pathlib.Path,
    is_wanted: Callable[[pathlib.Path], bool] | None = None,
    check: Callable[[pathlib.Path, manifest.Manifest], None] | None = None,
) -> pathlib.Path | None:
    """Returns the newest undamaged checkpoint of a directory, or None.

    A damaged checkpoint is passed over with a warning that names the damaged file.

    Args:
        directory: where to look.
        is_wanted: whether to consider a path; default every path.
        check: raises DataLossError if a checkpoint cannot be used, though it is whole.
    """
    for _ in range(_MOST_LOOKS):
        is_any_gone = False
        for path, _header in reversed(list_steps(directory)):
            if is_wanted is not None and not is_wanted(path):
                continue
            try:
                found = one_version.read(path, checksummed_files.read_verified)
                if check is not None:
                    check(path, found)
            except (errors.DataLossError, errors.NotFoundError) as error:
                if path.exists():
                    _warn_skipped(path, error)
                is_any_gone = is_any_gone or not path.exists()
                continue
            return path
        # Otherwise the list is out of date, and is read anew.
        if not is_any_gone:
            break
        # A manager has removed it since, after it had saved a newer one.
    return None


def _next_save_time(directory: pathlib.Path) -> int:
    """Returns the current time in nanoseconds, later than every checkpoint there.

    The clock may have been set back since the newest checkpoint was saved. The order
    of checkpoints must not change because of that.
    """
    return max(time.time_ns(), _find_newest_time(directory) + 1)


def _find_newest_time(directory: pathlib.Path) -> int:
    """Returns the time of a directory's newest checkpoint; 0 if there is none.

    Headers are not verified.
    """
    return max((h.saved_at for _, h in _headers(directory, True)), default=0)
