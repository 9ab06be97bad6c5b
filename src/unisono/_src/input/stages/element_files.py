"""Files of elements, for `cache(filename)` and `save`: plain arrays with checksums.

After the magic bytes a file has one chunk for each element and one for the end:

    mark, number, length   "+" or ".", the number of the element, the bytes that follow
    CRC-32C of these       so that a length is believed only if it is right
    contents               a line of JSON with structure, types and shapes; the arrays
    CRC-32C of the contents

The number of the chunk at the end is the number of elements. Nothing is ever pickled.

ArrayRecord and TensorStore could hold the contents of the chunks, but need them in one
piece of memory each. For batches of 800 kB, ArrayRecord writes 7 and reads 2 times as
long as this module, TensorStore writes 5 times as long, and small elements take 1.5 and
3 times as long to write.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gzip
import itertools
import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NoReturn, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors, nest, printable
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.sources import arrays, files


def layout(element: object, leaf: Callable[[Any], Any] = lambda _: None) -> object:
    """Returns the structure of an element, with `leaf(x)` in place of each leaf.

    >>> layout({"a": 1, "b": (2, 3)})
    {'dict': [['a', None], ['b', {'tuple': [None, None]}]]}
    """
    if element is None:
        return {"none": True}
    if not elements.is_structure(element):
        return leaf(element)
    # Pairs, not an object: JSON would make text of keys that are numbers.
    if isinstance(element, Mapping):
        return {"dict": [[k, layout(v, leaf)] for k, v in element.items()]}
    parts = [layout(v, leaf) for v in nest.children(element)]
    if hasattr(element, "_fields"):
        names = [type(element).__name__, *element._fields]
        return {"tuple": parts, "names": names}
    return {"tuple": parts}


def fill(made: object, leaf: Callable[[Any], Any]) -> Any:
    """Returns the structure that `layout` described, with `leaf(x)` for each leaf.

    >>> fill({"dict": [["a", 1], ["b", {"tuple": [2]}]]}, lambda n: n * 10)
    {'a': 10, 'b': (20,)}
    """
    if not isinstance(made, dict) or not made.keys() & {"none", "dict", "tuple"}:
        return leaf(made)
    if "none" in made:
        return None
    if "dict" in made:
        like = dict(made["dict"])
        return nest.rebuild(like, [fill(v, leaf) for v in nest.children(like)])
    parts = [fill(v, leaf) for v in made["tuple"]]
    return (
        _named_tuple_type(*made["names"])(*parts) if "names" in made else tuple(parts)
    )


# Cached, so that equal names give the same type: elements of one dataset must agree.
@functools.cache
def _named_tuple_type(name: str, *fields: str) -> type[tuple[Any, ...]]:
    return collections.namedtuple(name, fields)


def spec_to_json(spec: object) -> object:
    """Returns the specs of an element as JSON data.

    Raises:
        TypeError: one of them does not describe an array.
    """

    def convert_leaf(s: object) -> object:
        if not isinstance(s, specs.TensorSpec):
            raise TypeError(
                f"Only arrays can be written, and the dataset has {s}. Make arrays "
                "of it with map."
            )
        shape = s.shape.dims
        return {
            "shape": shape,
            "dtype": "string" if s.dtype.kind == "O" else s.dtype.name,
        }

    return layout(spec, convert_leaf)


def spec_from_json(made: object) -> elements.Spec:
    """Returns the specs that `from_spec` made JSON data of."""
    found: elements.Spec = fill(
        made, lambda s: specs.TensorSpec(s["shape"], _dtype(s["dtype"]))
    )
    return found


def _dtype(name: str) -> np.dtype:
    return np.dtype(object if name == "string" else name)


_MAGIC = b"unisono-cache-3\n"
# How files of earlier releases begin, which had no checksums.
_OLD_MAGICS = (b"unisono-cache-1\n", b"unisono-cache-2\n")
_HEAD = struct.Struct("<cQQ")
_SUM = struct.Struct("<I")
_ELEMENT, _END = b"+", b"."
# Arrays begin at multiples of this in a chunk, so that they are aligned in memory.
_ALIGNMENT = 16
# A compressed file does not tell its size, so long chunks are read in pieces.
_PIECE = 1 << 24
# Most descriptions of an element have fewer bytes than this.
_LINE = 1 << 12
# The exceptions of reading a damaged file. Of the `OSError`s only that of gzip: others
# come from the disk, not from the content.
_DAMAGES = (ValueError, EOFError, gzip.BadGzipFile, zlib.error)
# Those of contents whose checksum is right, but which this module did not write.
_FORGERIES = (
    TypeError, KeyError, IndexError, AttributeError, OverflowError, StopIteration,
)  # fmt: skip


def _pad(count: int) -> int:
    """Returns how many bytes follow `count` bytes up to the next aligned position."""
    return -count % _ALIGNMENT


_Piece = bytes | np.ndarray


def _describe(array: np.ndarray) -> tuple[list[Any], list[_Piece]]:
    """Returns type and shape of an array as JSON data, and its bytes in pieces."""
    shape = list(array.shape)
    if array.dtype.kind == "O":
        # Text has no fixed width: first the lengths, then all texts in one piece.
        flat = [_as_bytes(x) for x in array.ravel()]
        lengths = np.array([len(x) for x in flat], "<i8")
        return ["text", shape], [lengths.tobytes(), b"".join(flat)]
    # The description of types such as bfloat16 tells their size only; the name does it.
    kind = array.dtype.name if array.dtype.kind == "V" else array.dtype.str
    # The memory of the array itself: it may be large, and a copy takes time.
    return [kind, shape], [np.ascontiguousarray(array).reshape(-1).view(np.uint8)]


def _as_bytes(text: object) -> bytes:
    """Returns a text; refuses what else `bytes` takes, such as a number or an array."""
    if not isinstance(text, bytes):
        raise TypeError(f"Cannot store {type(text).__name__} as text: {text!r}.")
    return text


def _encode(element: object) -> list[_Piece]:
    """Returns the contents of a chunk, in pieces."""
    found = [_describe(elements.as_array(x)) for x in elements.leaves(element)]
    structure = layout(element)
    head = json.dumps({"structure": structure, "arrays": [d for d, _ in found]})
    made: list[_Piece] = [f"{head}{' ' * _pad(len(head) + 1)}\n".encode()]
    for piece in itertools.chain.from_iterable(pieces for _, pieces in found):
        made.append(piece)
        if _pad(len(piece)):
            made.append(bytes(_pad(len(piece))))
    return made


@final
class _Contents:
    """Reads the parts of a chunk's contents, in the order in which they were written.

    The arrays that it returns lie in the memory of the contents.
    """

    def __init__(self, contents: np.ndarray) -> None:
        self._contents = contents
        # `tobytes` of one page at most, unless the line is longer.
        start = contents[:_LINE].tobytes().find(b"\n")
        self._at = 1 + (start if start >= 0 else contents.tobytes().index(b"\n"))
        self.line = contents[: self._at].tobytes()
        self.head = json.loads(self.line)

    def arrays(self) -> Iterator[Any]:
        """Yields the arrays.

        Raises:
            ValueError: the contents end before, or go on after, the arrays.
        """
        for kind, shape in self.head["arrays"]:
            yield self._read_text(shape) if kind == "text" else self._read(kind, shape)
        if self._at != len(self._contents):
            raise ValueError("it has other bytes than its arrays")

    def _read(self, kind: str, shape: list[int]) -> np.ndarray:
        dtype = np.dtype(kind)
        count = math.prod(shape)
        return self._take(count * dtype.itemsize).view(dtype).reshape(shape)

    def _take(self, size: int) -> np.ndarray:
        """Returns the next bytes."""
        start, end = self._at, self._at + size
        if not start <= end <= len(self._contents):
            raise ValueError("its arrays are longer than it is")
        self._at = end + _pad(size)
        return self._contents[start:end]

    def _read_text(self, shape: list[int]) -> object:
        lengths = self._read("<i8", [math.prod(shape)]).tolist()
        if min(lengths, default=0) < 0:
            raise ValueError("it has a text of negative length")
        texts, start = self._take(sum(lengths)).tobytes(), 0
        out = np.empty(len(lengths), object)
        for i, length in enumerate(lengths):
            out[i] = texts[start : start + length]
            start += length
        return out.reshape(shape) if shape else out[0]


@final
class ElementWriter:
    """Writes elements into a new file, which is valid after `finish`.

    Attributes:
        path: the file.
        count: how many elements were written.

    Raises:
        FileExistsError: there is something under this name, even a link to nothing.
    """

    def __init__(self, path: str, compression: str | None = None) -> None:
        # Open until `close`, so not in a `with` statement.
        self._file: Any = (
            gzip.GzipFile(path, "xb") if compression else open(path, "xb")  # noqa: SIM115
        )
        self._file.write(_MAGIC)
        self.path, self.count = path, 0

    def write(self, element: object) -> None:
        """Appends an element to the file."""
        self._write_chunk(_ELEMENT, _encode(element))
        self.count += 1

    def _write_chunk(self, mark: bytes, pieces: list[_Piece]) -> None:
        head = _HEAD.pack(mark, self.count, sum(map(len, pieces)))
        self._file.write(head + _SUM.pack(files.checksum(head)))
        for piece in pieces:
            self._file.write(piece)
        self._file.write(_SUM.pack(files.checksum(*pieces)))

    def finish(self) -> None:
        """Writes the mark of the end, and closes the file."""
        self._write_chunk(_END, [b""])
        self._file.close()

    def discard(self) -> None:
        """Closes and removes the file."""
        with contextlib.suppress(OSError):
            # On a full disk the rest of the buffer cannot be written.
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


@final
class ElementReader(cursors.Cursor):
    """Reads the elements of a file, and compares every checksum.

    Args:
        path: the file.
        compression: None or "GZIP".
        like: returns an element or a spec with the named tuples of the elements, which
            files do not store.
        check: is called with the first element, and may raise.
        advice: what to do about a file of an earlier release, as a sentence.
    """

    # Of an object whose `__init__` did not end, too.
    _file: BinaryIO | None = None

    def __init__(
        self,
        path: str,
        compression: str | None = None,
        like: Callable[[], Any] | None = None,
        check: Callable[[Any], None] | None = None,
        advice: str = "Remove it, or choose another path.",
    ) -> None:
        self._path, self._compression = path, compression
        self._like, self._check, self._advice = like, check, advice
        self._next = self._at = 0
        self._over = False

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = files.open_file(self._path, self._compression)
            try:
                self._check_magic(self._file.read(len(_MAGIC)))
            except _DAMAGES as e:
                self.close()
                if isinstance(e, errors.DataLossError):
                    raise
                raise errors.DataLossError(f"{self._path} is damaged: {e}") from e
        return self._file

    def _check_magic(self, magic: bytes) -> None:
        if magic in _OLD_MAGICS:
            raise errors.DataLossError(
                f"{self._path} was written by an earlier release of unisono, without "
                f"checksums, and cannot be read. {self._advice}"
            )
        if magic != _MAGIC:
            raise errors.DataLossError(
                f"{self._path} is no file of elements of unisono: it begins "
                f"with other bytes. {self._advice}"
            )

    def read(self, count: int) -> list[Any]:
        file = self._open()
        found: list[Any] = []
        while len(found) < count and not self._over:
            self._at = file.tell()
            try:
                element = self._read_one(file)
            except (*_DAMAGES, *_FORGERIES, MemoryError, RecursionError) as e:
                self._raise_damage(e)
            if not self._over:
                if self._check is not None:
                    self._check(element)
                    self._check = None
                found.append(element)
                self._next += 1
        return found

    def _raise_damage(self, error: BaseException) -> NoReturn:
        raise errors.DataLossError(
            f"{self._path} is damaged at element {self._next} (near byte {self._at}): "
            f"{error or type(error).__name__}."
        ) from error

    def _read_one(self, file: BinaryIO) -> object:
        """Returns the next element; at the end of the data, notes that it is over."""
        mark, number, length = self._read_head(file)
        contents = self._read_exactly(file, length)
        (told,) = _SUM.unpack(self._read_exactly(file, _SUM.size).data)
        if told != files.checksum(contents):
            raise ValueError("its checksum does not match its contents")
        if number != self._next:
            raise ValueError(f"element {number} stands there")
        if mark == _END:
            # Reading on makes a compressed file check its checksum.
            if file.read(1):
                raise ValueError("more follows after the end")
            self._over = True
            return None
        parts = _Contents(contents)
        arrays = list(parts.arrays())
        each = iter(arrays)
        element = fill(parts.head["structure"], lambda _: next(each))
        if len(list(elements.leaves(element))) != len(arrays):
            raise ValueError("its structure and its arrays do not fit")
        # Only with named tuples: the file keeps
        # their names, but not the program's classes.
        if self._like is None or b'"names"' not in parts.line:
            return element
        values = elements.leaves(element)
        return elements.map_leaves(lambda _: next(values), self._like())

    def _read_head(self, file: BinaryIO) -> tuple[bytes, int, int]:
        """Returns mark, number and length of the next chunk."""
        whole = file.read(_HEAD.size + _SUM.size)
        if len(whole) < _HEAD.size + _SUM.size:
            raise EOFError("the file ends within it")
        head, (told,) = whole[: _HEAD.size], _SUM.unpack(whole[_HEAD.size :])
        if told != files.checksum(head):
            raise ValueError("the checksum of its header does not match")
        mark, number, length = _HEAD.unpack(head)
        if mark not in (_ELEMENT, _END):
            raise ValueError(f"expected an element, found {mark!r}")
        return mark, number, length

    def _read_exactly(self, file: BinaryIO, count: int) -> np.ndarray:
        """Returns the next bytes.

        Raises:
            EOFError: the file has fewer.
        """
        # A length that is longer than the file must not take its memory.
        if not self._compression and count > _PIECE:
            left = os.fstat(file.fileno()).st_size - file.tell()
            if count > left:
                raise EOFError("the file ends within it")
        found = np.empty(min(count, _PIECE) if self._compression else count, np.uint8)
        filled = 0
        while filled < count:
            if filled == len(found):
                # Doubling: fewer bytes are moved than read, however many there are.
                more = np.empty(min(filled, count - filled), np.uint8)
                found = np.concatenate([found, more])
            got = file.readinto(found[filled:].data)  # type: ignore[attr-defined]
            if not got:
                raise EOFError("the file ends within it")
            filled += got
        return found

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
class SavedShard(nodes.Node):
    """The elements of one file of a saved dataset.

    Attributes:
        path: the file.
        compression: None or "GZIP".
        count: how many elements the file has.
        signature: the spec of an element.
    """

    path: str
    compression: str | None
    count: int
    signature: elements.Spec

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads the file.

        Raises:
            NotFoundError: the file was replaced since the dataset was loaded.
        """
        if not os.path.exists(self.path):
            raise errors.NotFoundError(
                f"{self.path} is gone: the dataset was saved again since it was "
                "loaded. Load it again."
            )
        return ElementReader(
            self.path,
            self.compression,
            lambda: self.signature,
            advice="Save the dataset again.",
        )

    @property
    def cardinality(self) -> int:
        """Returns how many elements the file has."""
        return self.count

    def _spec(self) -> elements.Spec:
        return self.signature

    def __str__(self) -> str:
        return f"Saved({printable.escape(str(self.path))})"


@final
class Shards(arrays.Listed):
    """A dataset of datasets, one for each file."""
