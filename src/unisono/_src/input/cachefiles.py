"""`cache(filename)`: elements kept in a file, as plain arrays."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, BinaryIO

import numpy as np

from unisono._src import errors, nest
from unisono._src.input import cursors, elements, nodes

_MAGIC = b"unisono-cache-1\n"


def _layout(element: Any) -> Any:
    """The structure of an element as JSON data."""
    if isinstance(element, dict):
        return {"dict": [[k, _layout(v)] for k, v in element.items()]}
    if elements.is_structure(element):
        return {"tuple": [_layout(v) for v in nest.children(element)]}
    return None


def _filled(layout: Any, arrays: Any) -> Any:
    if layout is None:
        return next(arrays)
    if "dict" in layout:
        return {k: _filled(v, arrays) for k, v in layout["dict"]}
    return tuple(_filled(v, arrays) for v in layout["tuple"])


def _write(file: BinaryIO, array: np.ndarray) -> None:
    if array.dtype.kind == "O":
        # Text has no fixed width: its lengths, then everything in one piece.
        flat = [bytes(x) for x in array.ravel()]
        lengths = np.array([len(x) for x in flat], np.int64)
        file.write(b"T")
        np.lib.format.write_array(
            file, lengths.reshape(array.shape), allow_pickle=False
        )
        file.write(b"".join(flat))
    elif array.dtype.kind == "V":
        # Types that NumPy's format does not know, such as bfloat16.
        file.write(b"V" + str(array.dtype).encode() + b"\n")
        numbers = array.view(f"u{array.itemsize}")
        np.lib.format.write_array(file, numbers, allow_pickle=False)
    else:
        file.write(b"A")
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _read(file: BinaryIO) -> np.ndarray:
    kind = file.read(1)
    name = file.readline().decode().strip() if kind == b"V" else ""
    array = np.lib.format.read_array(file, allow_pickle=False)
    if kind != b"T":
        return array.view(name) if name else array
    out = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        out[index] = file.read(int(array[index]))
    return out[()] if out.ndim == 0 else out


class _Reading(cursors.Cursor):
    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._next = 0
        self._over = False

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = open(self._path, "rb")  # noqa: SIM115
            if self._file.read(len(_MAGIC)) != _MAGIC:
                raise errors.DataLossError(f"{self._path} is no cache of a dataset.")
        return self._file

    def read(self, count: int) -> list[Any]:
        file = self._open()
        found: list[Any] = []
        while len(found) < count and not self._over:
            at = file.tell()
            try:
                element = self._one(file)
            except (ValueError, EOFError) as e:
                raise errors.DataLossError(
                    f"{self._path} is damaged near byte {at}: {e}"
                ) from e
            if not self._over:
                found.append(element)
                self._next += 1
        return found

    def _one(self, file: BinaryIO) -> Any:
        mark = file.read(1)
        if mark == b".":
            self._over = True
            return None
        if mark != b"+":
            raise ValueError(f"expected an element, found {mark!r}")
        head = json.loads(file.readline())
        return _filled(head["structure"], iter([_read(file) for _ in range(head["n"])]))

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self.close()
        self._next, self._over = 0, False
        self.skip(state["next"])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()


class _Filling(cursors.Cursor):
    """Passes elements through and writes them; the file appears when all are there."""

    def __init__(self, node: FileCache) -> None:
        self._node = node
        self._source = node.parent.cursor()
        self._origin = self._source.get_state()
        self._aside = f"{node.path}.{os.getpid()}-{id(self)}.partial"
        self._file: BinaryIO | None = None
        self._next = 0
        self._over = False

    def read(self, count: int) -> Any:
        if self._over:
            return []
        if self._file is None:
            self._file = open(self._aside, "wb")  # noqa: SIM115
            self._file.write(_MAGIC)
        found = self._source.read(count)
        for element in found:
            _write_element(self._file, element)
        self._next += len(found)
        if len(found) < count:
            self._finish()
        return found

    def _finish(self) -> None:
        assert self._file is not None
        self._file.write(b".")
        self._file.close()
        self._file, self._over = None, True
        os.replace(self._aside, self._node.path)

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next, "origin": self._origin}

    def set_state(self, state: dict[str, Any]) -> None:
        self._drop()
        self._source.set_state(state.get("origin", self._origin))
        self._next, self._over = 0, False
        self.skip(state["next"])

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            os.unlink(self._aside)

    def close(self) -> None:
        self._drop()
        self._source.close()

    def __del__(self) -> None:
        self._drop()


def _write_element(file: BinaryIO, element: Any) -> None:
    arrays = list(elements.leaves(element))
    head = json.dumps({"structure": _layout(element), "n": len(arrays)})
    file.write(f"+{head}\n".encode())
    for array in arrays:
        _write(file, elements.as_array(array))


@dataclasses.dataclass(frozen=True, eq=False)
class FileCache(nodes.Unary):
    """Elements kept in a file after the first pass."""

    filename: str
    keeps_spec = True

    @property
    def path(self) -> str:
        """The file."""
        return f"{self.filename}.cache"

    def cursor(self) -> cursors.Cursor:
        """From the file if it is there."""
        if os.path.exists(self.path):
            return _Reading(self.path)
        return _Filling(self)

    def __str__(self) -> str:
        return f"Cache({self.filename})"
