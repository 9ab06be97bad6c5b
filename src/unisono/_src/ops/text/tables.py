"""Tables that look words and numbers up on the host, as in ``tf.lookup``."""

from __future__ import annotations

import abc
import itertools
import os
from typing import Any, TypeAlias, final

import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.input.sources import files
from unisono._src.ops.tensors import DType, TensorLike
from unisono._src.ops.text import arrays, hashing, numbers
from unisono._src.ops.text.arrays import Given, TextLike

__all__ = [
    "KeyValueTensorInitializer",
    "StaticHashTable",
    "StaticVocabularyTable",
    "TextFileIndex",
    "TextFileInitializer",
]

# Keys or values: words or numbers.
Entries: TypeAlias = TextLike | TensorLike
_WIDTHS = (
    "Keys and values may be integers of any width, because JAX has no 64-bit integers "
    "unless they are enabled."
)


class TableInitializer(abc.ABC):
    """The keys and values of a table; abstract.

    Attributes:
        key_dtype: the type of the keys.
        value_dtype: the type of the values.
    """

    key_dtype: np.dtype
    value_dtype: np.dtype

    @abc.abstractmethod
    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys and values as two vectors."""


@everyday_name("lookup.KeyValueTensorInitializer", difference=_WIDTHS)
@final
class KeyValueTensorInitializer(TableInitializer):
    """The keys and values of a table, from two arrays.

    Args:
        keys: strings or integers.
        values: strings or numbers, one for each key.
        key_dtype: the dtype of the keys; by default that of `keys`.
        value_dtype: the dtype of the values; by default that of `values`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the shapes differ, or there are no keys.
        TypeError: the keys are neither strings nor integers, or cannot be converted to
            the given types, or the values cannot.

    >>> KeyValueTensorInitializer(["a"], [1]).value_dtype
    dtype('int32')
    """

    def __init__(
        self,
        keys: Entries,
        values: Entries,
        key_dtype: DType = None,
        value_dtype: DType = None,
        name: str | None = None,
    ) -> None:
        self._keys = _read(keys, key_dtype, "keys")
        self._values = _read(values, value_dtype, "values")
        if self._keys.shape != self._values.shape or not self._keys.size:
            raise errors.InvalidArgumentError(
                f"A table has one value for each key, and at least one; received keys "
                f"of shape {self._keys.shape} and values of {self._values.shape}."
            )
        self.key_dtype, self.value_dtype = self._keys.dtype, self._values.dtype
        if self.key_dtype.kind not in "iuO":
            raise TypeError(
                f"Keys of a table are text or whole numbers, received {self.key_dtype}."
            )

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys and values as two vectors."""
        return self._keys.ravel(), self._values.ravel()


def _read(x: Entries, dtype: DType, what: str) -> np.ndarray:
    """Returns keys or values as an array of a type.

    Raises:
        TypeError: they are of another kind.
    """
    found = elements.as_array(
        elements.to_array(arrays.known("lookup.StaticHashTable", x))
    )
    if dtype is None or found.dtype == dtype:
        return found
    wanted = np.dtype(dtype)
    if "O" in (wanted.kind, found.dtype.kind):
        raise TypeError(f"{what} must be {wanted}, received {found.dtype}.")
    return found.astype(wanted, casting="same_kind")


@everyday_name("lookup.TextFileIndex")
@final
class TextFileIndex:
    """Indices of `TextFileInitializer` that are not columns.

    >>> TextFileIndex.WHOLE_LINE, TextFileIndex.LINE_NUMBER
    (-2, -1)
    """

    WHOLE_LINE = -2
    LINE_NUMBER = -1


@everyday_name("lookup.TextFileInitializer")
@final
class TextFileInitializer(TableInitializer):
    r"""The keys and values of a table, from the lines of a file.

    Args:
        filename: the path of the file.
        key_dtype: the dtype of the keys.
        key_index: the number of a column, `TextFileIndex.WHOLE_LINE` or
            `TextFileIndex.LINE_NUMBER`.
        value_dtype: the dtype of the values.
        value_index: the same for the value.
        vocab_size: the number of lines to read; None for all of them.
        delimiter: the separator of the columns.
        name: accepted for compatibility with TensorFlow and ignored.
        value_index_offset: a number to add to values that are line numbers.

    Raises:
        ValueError: an index is invalid, or a type does not fit its index.

    The file is read when a table is created; see `StaticHashTable`.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "words")
    >>> _ = path.write_text("a\nb\n")
    >>> whole, line = TextFileIndex.WHOLE_LINE, TextFileIndex.LINE_NUMBER
    >>> words = TextFileInitializer(path, dtypes.string, whole, dtypes.int64, line)
    >>> StaticHashTable(words, -1).lookup(["b", "x"]).tolist()
    [1, -1]
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        key_dtype: DType,
        key_index: int,
        value_dtype: DType,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        if not os.fspath(filename):
            raise ValueError("TextFileInitializer needs a filename.")
        self._path, self._size = files.path_of(filename), vocab_size
        self._delimiter = delimiter.encode()
        self._offset = value_index_offset
        self._indices = (key_index, value_index)
        self.key_dtype, self.value_dtype = np.dtype(key_dtype), np.dtype(value_dtype)
        for what, index, dtype in (
            ("key", key_index, self.key_dtype),
            ("value", value_index, self.value_dtype),
        ):
            if index < TextFileIndex.WHOLE_LINE:
                raise ValueError(f"`{what}_index` should be >= -2, received {index}.")
            if index == TextFileIndex.LINE_NUMBER and dtype != dtypes.int64:
                raise ValueError(
                    f"`{what}_dtype` must be int64 for `{what}_index` {index}, "
                    f"received {dtype}."
                )

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys and values as two vectors.

        Raises:
            NotFoundError: the file does not exist.
            InvalidArgumentError: a line is empty, has too few columns or an invalid
                number, or there are fewer lines than `vocab_size`.
        """
        with files.open_file(self._path, None) as file:
            # TensorFlow leaves carriage returns out, too.
            lines = file.read().replace(b"\r", b"").split(b"\n")
        if not lines[-1]:
            lines.pop()
        if self._size is not None and len(lines) < self._size:
            raise self._error(f"expected {self._size} lines, found {len(lines)}")
        lines = lines[: self._size]
        if not all(lines) or not lines:
            where = f"at line {lines.index(b'')}" if lines else "at the beginning"
            raise self._error(f"empty line found {where}")
        key, value = self._indices
        return (
            self._column(lines, key, self.key_dtype, 0),
            self._column(lines, value, self.value_dtype, self._offset),
        )

    def _column(
        self, lines: list[bytes], index: int, dtype: np.dtype, offset: int
    ) -> np.ndarray:
        if index == TextFileIndex.LINE_NUMBER:
            return np.arange(offset, offset + len(lines), dtype=dtype)
        if index != TextFileIndex.WHOLE_LINE:
            rows = [line.split(self._delimiter) for line in lines]
            for number, row in enumerate(rows):
                if len(row) <= index:
                    raise self._error(
                        f"line {number} has {len(row)} columns, expected at least "
                        f"{index + 1}"
                    )
            lines = [row[index] for row in rows]
        if dtype.kind == "O":
            return arrays.fill(lines, (len(lines),))
        try:
            return numbers.parse(lines, dtype)
        except ValueError:
            wrong = next(x for x in lines if not numbers.is_number(x, dtype))
            raise self._error(f"field {wrong!r} is not a valid {dtype}") from None

    def _error(self, why: str) -> errors.InvalidArgumentError:
        return errors.InvalidArgumentError(f"Invalid content in {self._path}: {why}.")


@everyday_name("lookup.StaticHashTable", difference=_WIDTHS)
@final
class StaticHashTable:
    """A table on the host that maps keys to values.

    Args:
        initializer: the keys and values: a `KeyValueTensorInitializer` or a
            `TextFileInitializer`.
        default_value: the value of a key that is not in the table.
        name: the attribute `name` of the table.
        experimental_is_anonymous: accepted for compatibility with TensorFlow and
            ignored.

    Raises:
        FailedPreconditionError: a key has two different values.
        TypeError: the type of `default_value` does not fit the values.

    >>> words = KeyValueTensorInitializer(["a", "b"], [10, 20])
    >>> table = StaticHashTable(words, default_value=-1)
    >>> table.lookup(["b", "x"]).tolist(), table[["a"]].tolist(), table.size().numpy()
    ([20, -1], [10], np.int64(2))
    """

    def __init__(
        self,
        initializer: TableInitializer,
        default_value: Entries,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        self.key_dtype = initializer.key_dtype
        self.value_dtype = initializer.value_dtype
        self.name = name or "hash_table"
        default = _read(default_value, None, "default_value")
        if default.ndim:
            raise ValueError(
                f"default_value of a table is one value, received {default_value!r}."
            )
        if not _is_alike(default.dtype, self.value_dtype):
            raise TypeError(
                f"default_value must be of the values' type {self.value_dtype}, "
                f"received {default_value!r}."
            )
        # A number that does not fit the type must not become another one.
        self._default = np.array(default.item(), self.value_dtype).item()
        keys, values = initializer.read()
        self._table: dict[Any, Any] = {}
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            if self._table.setdefault(key, value) != value:
                raise errors.FailedPreconditionError(
                    "HashTable has different value for same key. Key "
                    f"{key!r} has {self._table[key]!r} and trying to add value "
                    f"{value!r}."
                )

    @property
    def default_value(self) -> Given:
        """The value of a key that is not in the table."""
        return arrays.give(arrays.fill([self._default], (), self.value_dtype))

    def lookup(self, keys: Entries, name: str | None = None) -> Given:
        """Returns the value of each key, or the default value.

        Raises:
            TypeError: the keys have a wrong type, or a compiled step computes them.
        """
        found = read_keys("lookup.StaticHashTable.lookup", keys, self.key_dtype)
        return arrays.give(
            arrays.fill(self.find(found), np.shape(found), self.value_dtype)
        )

    def find(self, keys: np.ndarray) -> list[Any]:
        """Returns the values of keys that `read_keys` returned."""
        flat = keys.ravel().tolist()
        return list(map(self._table.get, flat, itertools.repeat(self._default)))

    def __getitem__(self, keys: Entries) -> Given:
        return self.lookup(keys)

    def size(self, name: str | None = None) -> Given:
        """Returns the number of keys."""
        return arrays.give(np.int64(len(self._table)))

    def export(self, name: str | None = None) -> tuple[Given, Given]:
        """Returns all keys and their values."""
        keys, values = list(self._table), list(self._table.values())
        shape = (len(keys),)
        return (
            arrays.give(arrays.fill(keys, shape, self.key_dtype)),
            arrays.give(arrays.fill(values, shape, self.value_dtype)),
        )


def _is_alike(a: np.dtype, b: np.dtype) -> bool:
    """Returns whether values of one type may be values of another."""
    return a.kind == b.kind or (a.kind in "iu" and b.kind in "iuf")


def read_keys(name: str, keys: Entries, dtype: np.dtype) -> np.ndarray:
    """Returns the keys that a program looks up.

    Raises:
        TypeError: they are of another type than the table's, or a compiled step
            computes them.
    """
    if dtype.kind == "O":
        text = arrays.read(name, keys)
        return arrays.fill([text], ()) if isinstance(text, bytes) else text
    found: Any = elements.to_array(arrays.known(name, keys))
    if isinstance(found, bytes) or found.dtype.kind not in "iu":
        raise TypeError(f"Dtype of argument `keys` must be {dtype}, received: {keys!r}")
    return np.asarray(found)


@everyday_name("lookup.StaticVocabularyTable", difference=_WIDTHS)
@final
class StaticVocabularyTable:
    """A table of the ids of words, with extra ids for words that it does not have.

    Args:
        initializer: the words and their ids, which start at 0; None for no words.
        num_oov_buckets: the number of extra ids. The hash of a word that is not in the
            table determines which of them it gets.
        lookup_key_dtype: the dtype of the keys to look up; by default, that of the
            words.
        name: the attribute `name` of the table.
        experimental_is_anonymous: accepted for compatibility with TensorFlow and
            ignored.

    Raises:
        ValueError: `num_oov_buckets` is not positive.
        TypeError: the ids are not integers, or `lookup_key_dtype` does not fit.

    >>> words = KeyValueTensorInitializer(["a", "b"], [0, 1], value_dtype="int64")
    >>> table = StaticVocabularyTable(words, num_oov_buckets=1)
    >>> table.lookup(["b", "x"]).tolist(), table.size().numpy()
    ([1, 2], np.int64(3))
    """

    def __init__(
        self,
        initializer: TableInitializer | None,
        num_oov_buckets: int,
        lookup_key_dtype: DType = None,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        if num_oov_buckets <= 0:
            raise ValueError("`num_oov_buckets` must be > 0; use StaticHashTable.")
        self._buckets = num_oov_buckets
        self.name = name or "vocabulary_table"
        self.value_dtype = dtypes.int64
        self._table: StaticHashTable | None = None
        own = dtypes.string
        if initializer is not None:
            if initializer.value_dtype.kind not in "iu":
                raise TypeError(
                    "Invalid `value_dtype`, expected int64 but got "
                    f"{initializer.value_dtype}."
                )
            self._table, own = StaticHashTable(initializer, -1), initializer.key_dtype
        wanted = own if lookup_key_dtype is None else np.dtype(lookup_key_dtype)
        if initializer is not None and not _is_alike(wanted, own):
            raise TypeError(
                f"Invalid `key_dtype`, expected {own} but got {wanted} for the keys to "
                "look up."
            )
        self.key_dtype = wanted

    def lookup(self, keys: Entries, name: str | None = None) -> Given:
        """Returns the id of each word, as int64.

        Raises:
            TypeError: the keys have a wrong type, or a compiled step computes them.
        """
        found = read_keys("lookup.StaticVocabularyTable.lookup", keys, self.key_dtype)
        count = int(self._size())
        values = self._table.find(found) if self._table else [-1] * found.size
        for i, key in enumerate(found.ravel().tolist() if -1 in values else ()):
            if values[i] == -1:
                # TensorFlow hashes the text of a number.
                text = key if isinstance(key, bytes) else str(key).encode()
                values[i] = count + hashing.fingerprint(text) % self._buckets
        return arrays.give(arrays.fill(values, np.shape(found), dtypes.int64))

    def _size(self) -> int:
        return int(self._table.size()) if self._table else 0

    def __getitem__(self, keys: Entries) -> Given:
        return self.lookup(keys)

    def size(self, name: str | None = None) -> Given:
        """Returns the number of words plus `num_oov_buckets`."""
        return arrays.give(np.int64(self._size() + self._buckets))
