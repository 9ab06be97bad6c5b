"""Parquet and ArrayRecord files, read by Grain."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, elements, loader_structures, nodes


def allow_flags() -> None:
    """Let Grain ask for its flags in a program that does not use absl's."""
    flags = sys.modules["absl.flags"].FLAGS  # Grain has loaded it.
    if not flags.is_parsed():
        flags.mark_as_parsed()


def read(iterator: Iterator[Any], count: int) -> list[Any]:
    """The next elements of an iterator of Grain's, fewer at its end."""
    return [
        elements.convert(loader_structures.to_structure(element))
        for element in itertools.islice(iterator, count)
    ]


class OfGrain(cursors.Cursor, abc.ABC):
    """An iterator of Grain's, which has positions of its own; abstract."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        # Where a closed one was.
        self._last: dict[str, Any] | None = None

    def get_state(self) -> dict[str, Any]:
        """Grain's, which may be bytes."""
        if self._last is not None:
            return self._last
        state = self._iterator.get_state()
        if isinstance(state, bytes):
            return {"grain-bytes": state.decode("latin-1")}
        return {"grain": state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Grain's."""
        if self._last is not None:
            self._last = state
        elif "grain-bytes" in state:
            self._iterator.set_state(state["grain-bytes"].encode("latin-1"))
        else:
            self._iterator.set_state(state["grain"])

    def close(self) -> None:
        """Grain's threads and processes end."""
        # A broken one tells no position, and is closed all the same.
        with contextlib.suppress(Exception):
            self._last = self.get_state()
        # Some have no `close`; their processes end with the last reference.
        iterator, self._iterator = self._iterator, iter(())
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


@final
class Wrapped(OfGrain):
    """The elements of an iterator of Grain's."""

    def read(self, count: int) -> list[Any]:
        """Element by element."""
        return read(self._iterator, count)


def _unreadable(paths: Sequence[str], kind: str, reason: Exception) -> Exception:
    """The error that names the files which a library cannot read."""
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        return errors.NotFoundError(f"{missing[0]}: No such file or directory.")
    return errors.DataLossError(
        f"{', '.join(paths)}: cannot be read as {kind}: {reason}. The file is damaged, "
        f"or is no {kind} file."
    )


@final
class _Chained(cursors.Cursor):
    """Parquet files one after the other."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._file = 0
        self._inner: Wrapped | None = None

    def _open(self) -> Wrapped:
        import grain

        if self._inner is None:
            dataset = grain.experimental.ParquetIterDataset(self._files[self._file])
            self._inner = Wrapped(iter(dataset))
        return self._inner

    def _read(self, count: int) -> list[Any]:
        try:
            return self._open().read(count)
        except Exception as e:
            if not isinstance(e, OSError) and type(e).__module__ != "pyarrow.lib":
                raise
            raise _unreadable([self._files[self._file]], "Parquet", e) from e

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and self._file < len(self._files):
            wanted = count - len(found)
            more = self._read(wanted)
            found.extend(more)
            if len(more) < wanted:
                self.close()
                self._file += 1
        return found

    def get_state(self) -> dict[str, Any]:
        inner = None if self._inner is None else self._inner.get_state()
        return {"file": self._file, "inner": inner}

    def set_state(self, state: dict[str, Any]) -> None:
        self.close()
        self._file = state["file"]
        if state["inner"] is not None:
            self._open().set_state(state["inner"])

    def close(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Parquet(nodes.Node):
    """The rows of Parquet files, each a dict of columns."""

    files: tuple[str, ...]
    kind = "Parquet"
    cardinality = nodes.UNKNOWN
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """Row after row, file after file."""
        return _Chained(self.files)

    def _spec(self) -> Any:
        element = nodes.first(self)
        if element is None:
            raise ValueError(
                f"Cannot tell the element_spec of Parquet files without rows: "
                f"{', '.join(self.files)}."
            )
        return elements.spec_of(element)

    def __str__(self) -> str:
        return f"Parquet({len(self.files)} files)"


@final
class _Records:
    """Records that can be read in any order."""

    def __init__(self, source: Any, paths: Sequence[str]) -> None:
        self._source, self._paths = source, paths

    def at(self, index: int) -> Any:
        return self._found([int(index)])[0]

    def _found(self, indices: list[int]) -> list[bytes]:
        try:
            found: list[bytes] = self._source.__getitems__(indices)
            return found
        except RuntimeError as e:
            raise _unreadable(self._paths, "ArrayRecord", e) from e

    def take(self, indices: np.ndarray, blank: nodes.Blank = np.empty) -> Any:
        found = self._found([int(i) for i in indices])
        out = np.empty(len(found), object)
        out[:] = found
        return out

    def slice(self, start: int, stop: int) -> Any:
        return self.take(np.arange(start, stop))


def _check_alone(path: str) -> None:
    """Raise if it is this file that cannot be read."""
    import grain

    try:
        grain.sources.ArrayRecordDataSource([path])
    except RuntimeError as e:
        raise _unreadable([path], "ArrayRecord", e) from e


@final
@dataclasses.dataclass(frozen=True, eq=False)
class ArrayRecord(nodes.Indexed):
    """The records of ArrayRecord files, in any order at the price of none."""

    files: tuple[str, ...]
    kind = "ArrayRecord"

    @functools.cached_property
    def _source(self) -> Any:
        import grain

        try:
            return grain.sources.ArrayRecordDataSource(list(self.files))
        except RuntimeError as e:
            for path in self.files:
                _check_alone(path)
            raise _unreadable(self.files, "ArrayRecord", e) from e

    def cursor(self) -> cursors.Cursor:
        """Record after record."""
        return nodes.Lookup(self.rows(), self.indices())

    def rows(self) -> _Records:
        """Grain's source."""
        return _Records(self._source, self.files)

    def indices(self) -> cursors.Cursor:
        """Every record."""
        return cursors.Count(len(self._source))

    @property
    def cardinality(self) -> int:
        """How many records the files have."""
        return len(self._source)

    def _spec(self) -> Any:
        return specs.TensorSpec((), object)

    def __str__(self) -> str:
        return f"ArrayRecord({len(self.files)} files)"
