"""TensorFlow's functions for files and folders, for those of this machine."""

from __future__ import annotations

import contextlib
import glob as globbing
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, final

from unisono._src.foundation.errors import (
    AlreadyExistsError,
    NotFoundError,
    PermissionDeniedError,
)

Path = str | os.PathLike[str]


def _local_path(path: Path) -> str:
    """Returns a path as text; raises if it names a place on another machine."""
    text = os.fspath(path)
    scheme, found, rest = text.partition("://")
    if found and scheme == "file":
        return rest
    if found:
        raise ValueError(
            f"unisono.io.gfile reads files of this machine, and {text!r} is not one. "
            "Mount the storage as a folder, or use fsspec or etils.epath."
        )
    return text


@contextlib.contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raises this package's errors, which are also Python's, in place of Python's."""
    try:
        yield
    except FileNotFoundError as error:
        missing = error.filename or os.fspath(path)
        raise NotFoundError(f"{missing}; No such file or directory") from error
    except io.UnsupportedOperation as error:
        said = str(error).replace("not ", "is not open to be ")
        raise PermissionDeniedError(f"{os.fspath(path)}: the file {said}.") from error
    except PermissionError as error:
        raise PermissionDeniedError(f"{os.fspath(path)}; Permission denied") from error
    except FileExistsError as error:
        raise AlreadyExistsError(f"{os.fspath(path)}; File exists") from error


def exists(path: Path) -> bool:
    """Returns whether a file or folder exists.

    >>> import unisono
    >>> unisono.io.gfile.exists("/")
    True
    """
    return os.path.exists(_local_path(path))


def isdir(path: Path) -> bool:
    """Returns whether a path is a folder."""
    return os.path.isdir(_local_path(path))


def join(path: Path, *paths: Path) -> str:
    """Returns the parts of a path joined into one.

    >>> import unisono
    >>> unisono.io.gfile.join("runs", "first", "ckpt")
    'runs/first/ckpt'
    """
    return os.path.join(path, *paths)


def makedirs(path: Path) -> None:
    """Creates a folder and its parents; a folder that exists is not changed."""
    with _translate_errors(path):
        os.makedirs(_local_path(path), exist_ok=True)


def mkdir(path: Path) -> None:
    """Creates a folder; a folder that exists is not changed.

    Raises:
        AlreadyExistsError: a file of that name exists.
        NotFoundError: the parent folder does not exist.
    """
    with _translate_errors(path):
        if not isdir(path):
            os.mkdir(_local_path(path))


def listdir(path: Path) -> list[str]:
    """Returns the names in a folder, in no particular order.

    Raises:
        NotFoundError: there is no such folder.
    """
    with _translate_errors(path):
        return os.listdir(_local_path(path))


def glob(pattern: Path | Sequence[Path]) -> list[str]:
    """Returns the paths that match a pattern, or several, sorted for each pattern.

    As in TensorFlow, paths begin with ``./`` if the pattern begins with a wildcard or
    has one in its first folder.
    """
    patterns = [pattern] if isinstance(pattern, (str, os.PathLike)) else pattern
    found: list[str] = []
    for one in map(_local_path, patterns):
        before = re.split(r"[*?[]", one, maxsplit=1)
        is_below = len(before) > 1 and os.sep not in before[0]
        found += sorted(globbing.glob(os.path.join(".", one) if is_below else one))
    return found


def remove(path: Path) -> None:
    """Removes a file.

    Raises:
        NotFoundError: there is no such file.
    """
    with _translate_errors(path):
        os.remove(_local_path(path))


def rmtree(path: Path) -> None:
    """Removes a folder with everything in it.

    Raises:
        NotFoundError: there is no such folder.
    """
    with _translate_errors(path):
        shutil.rmtree(_local_path(path))


def _check_free(path: Path, overwrite: bool) -> None:
    if not overwrite and os.path.exists(_local_path(path)):
        raise AlreadyExistsError(
            f"{os.fspath(path)} exists already; pass overwrite=True to replace it."
        )


def copy(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Copies a file.

    Raises:
        AlreadyExistsError: `dst` exists, and `overwrite` is False.
        NotFoundError: there is no file `src`.
    """
    _check_free(dst, overwrite)
    with _translate_errors(src):
        shutil.copyfile(_local_path(src), _local_path(dst))


def rename(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Renames a file or folder.

    Raises:
        AlreadyExistsError: `dst` exists, and `overwrite` is False.
        NotFoundError: there is no file or folder `src`.
    """
    _check_free(dst, overwrite)
    with _translate_errors(src):
        os.replace(_local_path(src), _local_path(dst))


def read_bytes(path: Path) -> bytes:
    """Returns the contents of a file.

    Raises:
        NotFoundError: there is no such file.
        PermissionDeniedError: the program may not read it.
    """
    try:
        # Not `open`, which takes as long as it takes to read a small file.
        handle = os.open(_local_path(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(handle).st_size
            # One more, so that the end is noticed at once.
            parts = [os.read(handle, size + 1)]
            # Pipes and the like do not tell their size, and large files come in parts.
            while parts[-1] and (not size or len(parts[0]) != size):
                parts.append(os.read(handle, max(size, 1 << 20)))
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            os.close(handle)
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        with _translate_errors(path):
            raise error


@final
class FileStatistics(NamedTuple):
    """Describes a file or folder.

    Attributes:
        length: its size in bytes.
        mtime_nsec: when it was changed, in nanoseconds since 1970.
        is_directory: whether it is a folder.
    """

    length: int
    mtime_nsec: int
    is_directory: bool


def stat(path: Path) -> FileStatistics:
    """Returns the size of a file, its modification time, and whether it is a folder.

    Raises:
        NotFoundError: there is no such file or folder.
    """
    with _translate_errors(path):
        found = os.stat(_local_path(path))
    return FileStatistics(found.st_size, found.st_mtime_ns, isdir(path))


def walk(
    top: Path,
    topdown: bool = True,
    onerror: Callable[[OSError], object] | None = None,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields `top` and each folder below it with their contents, like `os.walk`."""
    return os.walk(_local_path(top), topdown, onerror)


@final
class GFile:
    r"""An open file, like the result of Python's `open`.

    Args:
        name: the path of the file.
        mode: how to open it, as for `open`.

    Raises:
        NotFoundError: there is no such file.
        PermissionDeniedError: the program is not allowed to open it.

    >>> import os, tempfile, unisono
    >>> path = os.path.join(tempfile.mkdtemp(), "notes")
    >>> with unisono.io.gfile.GFile(path, "w") as file:
    ...     file.write("one\ntwo\n")
    >>> unisono.io.gfile.GFile(path).readlines()
    ['one\n', 'two\n']
    """

    def __init__(self, name: Path, mode: str = "r") -> None:
        self._name = os.fspath(name)
        encoding = None if "b" in mode else "utf-8"
        with _translate_errors(name):
            # Whoever made the object closes it, as with `open` itself.
            self._file: Any = open(_local_path(name), mode, encoding=encoding)  # noqa: SIM115

    @property
    def name(self) -> str:
        """The path that was passed."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode in which the file was opened."""
        return str(self._file.mode)

    def read(self, n: int = -1) -> str | bytes:
        """Returns the next `n` characters or bytes, or all remaining ones."""
        with _translate_errors(self._name):
            content: str | bytes = self._file.read(n)
        return content

    def readline(self) -> str | bytes:
        """Returns the next line, including its line break."""
        with _translate_errors(self._name):
            line: str | bytes = self._file.readline()
        return line

    def readlines(self) -> list[str | bytes]:
        """Returns all remaining lines, and closes the file."""
        with self:
            return list(self._file.readlines())

    def write(self, file_content: str | bytes) -> None:
        """Writes text or bytes, whatever the mode is; text is encoded in UTF-8.

        Raises:
            TypeError: `file_content` is something else.
        """
        if not isinstance(file_content, (str, bytes, bytearray)):
            raise TypeError(f"Expected binary or unicode string, got {file_content!r}")
        if "b" in self._file.mode:
            if isinstance(file_content, str):
                file_content = file_content.encode()
        elif not isinstance(file_content, str):
            file_content = file_content.decode()
        with _translate_errors(self._name):
            self._file.write(file_content)

    def seek(self, offset: int = 0, whence: int = 0) -> None:
        """Moves to a position in the file, as Python's `seek` does."""
        self._file.seek(offset, whence)

    def tell(self) -> int:
        """Returns the position in the file."""
        return int(self._file.tell())

    def size(self) -> int:
        """Returns the size of the file in bytes."""
        return stat(self._name).length

    def flush(self) -> None:
        """Passes all written text to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file, after writing any text that is still buffered."""
        self._file.close()

    def __iter__(self) -> Iterator[str | bytes]:
        return iter(self._file)

    def __enter__(self) -> GFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
