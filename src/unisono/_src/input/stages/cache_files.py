"""Writes elements to files as plain arrays and reads them, for `cache(filename)`."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import os
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, elements, nodes, structure_json
from unisono._src.input.sources import files

_MAGIC = b"unisono-cache-2\n"
# The exceptions of reading a damaged file. Of the `OSError`s only that of gzip: others
# come from the disk, not from the content.
_DAMAGES = (ValueError, EOFError, gzip.BadGzipFile, zlib.error)


def _write(file: BinaryIO, array: np.ndarray) -> None:
    """Writes an array behind a letter for its format. Nothing is ever pickled."""
    if array.dtype.kind == "O":
        # Text has no fixed width: first the lengths, then all texts in one piece.
        flat = [bytes(x) for x in array.ravel()]
        lengths = np.array([len(x) for x in flat], np.int64)
        file.write(b"T")
        np.lib.format.write_array(
            file, lengths.reshape(array.shape), allow_pickle=False
        )
        file.write(b"".join(flat))
    elif array.dtype.kind == "V":
        # NumPy's format does not know types such as bfloat16: the name of the type,
        # then the bits as unsigned integers.
        file.write(b"V" + str(array.dtype).encode() + b"\n")
        numbers = array.view(f"u{array.itemsize}")
        np.lib.format.write_array(file, numbers, allow_pickle=False)
    else:
        file.write(b"A")
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _read(file: BinaryIO) -> np.ndarray:
    """Returns the next array of a file."""
    kind = file.read(1)
    name = file.readline().decode().strip() if kind == b"V" else ""
    array = np.lib.format.read_array(file, allow_pickle=False)
    if kind != b"T":
        return array.view(name) if name else array
    out = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        text = file.read(int(array[index]))
        if len(text) < array[index]:
            raise EOFError("the file ends within a text")
        out[index] = text
    return out[()] if out.ndim == 0 else out


@final
class ElementWriter:
    """Writes elements into a file, which is valid after `finish`."""

    def __init__(self, path: str, compression: str | None = None) -> None:
        # Open until `close`, so not in a `with` statement.
        self._file: Any = (
            gzip.GzipFile(path, "wb") if compression else open(path, "wb")  # noqa: SIM115
        )
        self._file.write(_MAGIC)

    def write(self, element: Any) -> None:
        """Writes an element."""
        arrays = list(elements.leaves(element))
        head = {"structure": structure_json.layout(element), "n": len(arrays)}
        self._file.write(f"+{json.dumps(head)}\n".encode())
        for array in arrays:
            _write(self._file, elements.as_array(array))

    def finish(self) -> None:
        """Writes the mark of the end, and closes the file."""
        self._file.write(b".")
        self.close()

    def close(self) -> None:
        """Closes the file, which stays invalid without the mark of the end."""
        self._file.close()


@final
class ElementReader(cursors.Cursor):
    """Reads the elements of a file.

    Args:
        path: the file.
        compression: None or "GZIP".
        like: returns an element or a spec with the named tuples of the elements, which
            files do not store.
        check: is called with the first element, and may raise.
    """

    def __init__(
        self,
        path: str,
        compression: str | None = None,
        like: Callable[[], Any] | None = None,
        check: Callable[[Any], None] | None = None,
    ) -> None:
        self._path, self._compression = path, compression
        self._like, self._check = like, check
        self._file: Any = None
        self._next = self._at = 0
        self._over = False

    def _open(self) -> Any:
        if self._file is None:
            self._file = files.open_file(self._path, self._compression)
            head = b""
            with contextlib.suppress(*_DAMAGES):
                head = self._file.read(len(_MAGIC))
            if head != _MAGIC:
                self.close()
                raise errors.DataLossError(
                    f"{self._path} is no file of elements of unisono: it begins "
                    "with other bytes. Remove it, or choose another path."
                )
        return self._file

    def read(self, count: int) -> list[Any]:
        file = self._open()
        found: list[Any] = []
        while len(found) < count and not self._over:
            at = self._at = file.tell()
            try:
                element = self._read_one(file)
            except _DAMAGES as e:
                raise errors.DataLossError(
                    f"{self._path} is damaged near byte {at}: {e}"
                ) from e
            if not self._over:
                if self._check is not None:
                    self._check(element)
                    self._check = None
                found.append(element)
                self._next += 1
        return found

    def _read_one(self, file: BinaryIO) -> Any:
        """Returns the next element; at the end of the data, notes that it is over."""
        mark = file.read(1)
        if mark == b".":
            # Reading on makes a compressed file check its checksum.
            if file.read(1):
                raise ValueError("more follows after the end")
            self._over = True
            return None
        if mark != b"+":
            raise ValueError(f"expected an element, found {mark!r}")
        line = file.readline()
        head = json.loads(line)
        arrays = iter([_read(file) for _ in range(head["n"])])
        element = structure_json.fill(head["structure"], lambda _: next(arrays))
        if self._like is None or b'"names"' not in line:
            return element
        values = elements.leaves(element)
        return elements.map_leaves(lambda _: next(values), self._like())

    def get_state(self) -> dict[str, Any]:
        if self._file is None or self._compression:
            return {"next": self._next, "at": None}
        # At the end of the data the position is before the mark of the end, so that a
        # reader who continues there finds it.
        at = self._at if self._over else self._file.tell()
        return {"next": self._next, "at": at}

    def set_state(self, state: dict[str, Any]) -> None:
        self.close()
        self._next, self._over = 0, False
        if state.get("at") is None:
            self.skip(state["next"])
        else:
            self._open().seek(state["at"])
            self._next = state["next"]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()


@final
class _Filling(cursors.Cursor):
    """Passes elements on and writes them; the file appears when it is complete."""

    def __init__(self, node: FileCache) -> None:
        self._node = node
        self._source = node.parent.cursor()
        self._origin = self._source.get_state()
        # A name of its own for each process and iterator: several may fill at once.
        self._aside = f"{node.path}.{os.getpid()}-{id(self)}.partial"
        self._file: ElementWriter | None = None
        self._next = 0
        self._over = False
        # A pass that lost an element to an exception must not become the file.
        self._has_failed = False

    def read(self, count: int) -> Any:
        if self._over:
            return []
        if self._file is None and not self._has_failed:
            try:
                self._file = ElementWriter(self._aside)
            except FileNotFoundError as e:
                folder = os.path.dirname(self._aside)
                raise errors.NotFoundError(
                    f"Cannot keep a dataset in {self._node.path}: there is no folder "
                    f"{folder}. Make it first."
                ) from e
        try:
            found = self._source.read(count)
        except BaseException:
            self._has_failed = True
            self._drop()
            raise
        if self._file is not None:
            for element in found:
                self._file.write(element)
        self._next += len(found)
        if len(found) < count:
            self._finish()
        return found

    def _finish(self) -> None:
        self._over = True
        if self._file is not None:
            self._file.finish()
            self._file = None
            os.replace(self._aside, self._node.path)

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next, "origin": self._origin}

    def set_state(self, state: dict[str, Any]) -> None:
        self._drop()
        self._source.set_state(state.get("origin", self._origin))
        self._next, self._over, self._has_failed = 0, False, False
        self.skip(state["next"])

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                # On a full disk the rest of the buffer cannot be written.
                file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._aside)

    def close(self) -> None:
        self._drop()
        self._source.close()

    def __del__(self) -> None:
        self._drop()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class FileCache(nodes.Passing):
    """Keeps the elements of the first pass in a file."""

    filename: str
    keeps_spec = True

    @property
    def path(self) -> str:
        """Returns the path of the file."""
        return f"{self.filename}.cache"

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads the file, or writes it if there is none."""
        if os.path.exists(self.path):
            return ElementReader(self.path, like=lambda: self.spec, check=self._check)
        return _Filling(self)

    @property
    def cardinality(self) -> int:
        """Returns the cardinality of the parent."""
        return self.parent.cardinality

    def _check(self, element: Any) -> None:
        """Raises `InvalidArgumentError` if an element cannot be of this dataset."""
        if not nodes.tells_spec(self):
            return
        pairs = zip(elements.leaves(self.spec), elements.leaves(element), strict=False)
        for spec, x in pairs:
            found = elements.as_array(x).dtype
            if found != spec.dtype:
                raise errors.InvalidArgumentError(
                    f"{self.path} was made by another dataset: it has elements of type "
                    f"{found} where {spec.dtype} was expected. Remove it, or choose "
                    "another filename."
                )

    def __str__(self) -> str:
        return f"Cache({self.filename})"
