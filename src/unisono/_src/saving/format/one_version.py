"""Reading of one version of a directory that a writer may replace at any moment.

A writer replaces a directory by one rename. Files that are opened by their path would
then come from two versions. A reader therefore opens the directory itself, reads all
files below what it has opened, and holds a shared lock on it. Writers remove only
directories that nobody has locked.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar, final

from unisono._src.foundation import errors

_T = TypeVar("_T")

# The beginning of the names of directories that are incomplete or no longer needed.
HIDDEN_PREFIX = ".unisono-"
# A writer would have to replace the directory this often during one read.
_MOST_TRIES = 100
_PAUSE_SECONDS = 0.01
# On Linux the files below an open directory can be named through this path. What has
# the name of the directory by now does not matter.
_OPEN_FILES = pathlib.Path("/proc/self/fd")

_READ_ERRORS = (
    errors.DataLossError,
    errors.NotFoundError,
    errors.FailedPreconditionError,
)


@final
class Version:
    """One version of a directory, held open.

    Close it when everything has been read.

    Args:
        directory: the path of the directory.

    Attributes:
        directory: the path as it was given, for messages.
        path: the path through which the files of this version are read.

    Raises:
        NotFoundError: there is no such directory.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._handle = _open_locked(directory)
        alias = _OPEN_FILES / str(self._handle)
        self._has_alias = alias.is_dir()
        self.path = alias if self._has_alias else directory

    def close(self) -> None:
        """Lets writers remove this version."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    @property
    def is_current(self) -> bool:
        """Whether the directory of that name is still this version."""
        try:
            found = os.stat(self.directory)
        except OSError:
            return False
        own = os.fstat(self._handle)
        # The number cannot have been given to another directory: this one is held open.
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    @property
    def is_trustworthy(self) -> bool:
        """Whether all that was read through `path` so far came from this version."""
        return self._has_alias or self.is_current

    def raise_named(self, error: Exception) -> NoReturn:
        """Raises an error of reading with the directory's own name in its message."""
        text = str(error)
        # Not within a longer number: /proc/self/fd/1 is no part of /proc/self/fd/12.
        pattern = re.escape(str(self.path)) + r"(?!\d)"
        named = re.sub(pattern, lambda _: str(self.directory), text)
        if named == text or not isinstance(error, _READ_ERRORS):
            raise error
        raise type(error)(named) from error.__cause__


def _open_locked(directory: pathlib.Path) -> int:
    """Returns a handle of a directory, with a shared lock on it where there are locks.

    Raises:
        OSError: there is no such directory, or it cannot be opened.
    """
    while True:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            # A writer is removing it, and another one has its name by now. Or it was
            # committed at this very moment, and its writer is about to unlock it.
            os.close(handle)
            time.sleep(_PAUSE_SECONDS / 10)
            continue
        except OSError:
            pass  # This file system has no locks.
        return handle


def open_verified(
    directory: pathlib.Path, verify: Callable[[pathlib.Path], _T]
) -> tuple[Version, _T]:
    """Opens the current version of a directory and verifies it.

    If the version was replaced and removed meanwhile, the next one is opened.

    Args:
        directory: the path of the directory.
        verify: reads and checks files below the path that it is given. It raises
            DataLossError, NotFoundError or OSError if it cannot.

    Returns:
        The open version, which the caller closes, and the result of `verify`.

    Raises:
        DataLossError: this version is damaged.
        NotFoundError: there is no such directory, or not what `verify` looks for.
    """
    for is_last in (*(False,) * _MOST_TRIES, True):
        try:
            version = Version(directory)
        except OSError:
            if is_last or not _is_being_replaced(directory):
                verify(directory)  # It knows what is missing, and says so.
            time.sleep(_PAUSE_SECONDS)
            continue
        try:
            found = verify(version.path)
            if version.is_trustworthy:
                return version, found
        except (*_READ_ERRORS, OSError) as error:
            if version.is_current or is_last:
                version.close()
                version.raise_named(error)
        except BaseException:
            version.close()
            raise
        version.close()
        time.sleep(_PAUSE_SECONDS)
    raise errors.NotFoundError(
        f"{directory} was replaced {_MOST_TRIES} times while it was being read. Read "
        "it when less is written."
    )


def _is_being_replaced(directory: pathlib.Path) -> bool:
    """Whether a writer may be between the two renames of a replacement.

    Only file systems that cannot exchange two names in one step need two renames.
    """
    try:
        names = os.listdir(directory.parent)
    except OSError:
        return False
    ending = f"-{directory.name}"
    return any(n.startswith(HIDDEN_PREFIX) and n.endswith(ending) for n in names)


def read(directory: pathlib.Path, get: Callable[[pathlib.Path], _T]) -> _T:
    """Returns the result of a function that reads one version of a directory.

    Args:
        directory: the path of the directory.
        get: reads files below the path that it is given. It is called again if the
            version was replaced and removed while it read.

    Raises:
        DataLossError: the version is damaged.
        NotFoundError: there is no such directory, or not what `get` looks for.
    """
    version, found = open_verified(directory, get)
    version.close()
    return found
