"""Sources that Grain reads: its own pipelines, Parquet and ArrayRecord files."""

from __future__ import annotations

import abc
import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import (
    cursors,
    elements,
    first_elements,
    loader_structures,
    nodes,
)
from unisono._src.input.sources import iterables


def allow_flags() -> None:
    """Lets Grain read its flags in a program that does not parse absl's."""
    flags = sys.modules["absl.flags"].FLAGS  # Grain has loaded it.
    if not flags.is_parsed():
        # Flags that are read before they are parsed
        # raise; now they have their defaults.
        flags.mark_as_parsed()


def read(iterator: Iterator[Any], count: int) -> list[Any]:
    """Returns the next elements of one of Grain's iterators; fewer at its end."""
    return [
        loader_structures.to_element(element)
        for element in itertools.islice(iterator, count)
    ]


class GrainCursor(cursors.Cursor, abc.ABC):
    """A stream over one of Grain's iterators, which tell their position; abstract."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        # The position at which the iterator was closed; None while it is open.
        self._last: dict[str, Any] | None = None

    def get_state(self) -> dict[str, Any]:
        """Returns Grain's state; bytes become text, since a state is plain data."""
        if self._last is not None:
            return self._last
        state = self._iterator.get_state()
        if isinstance(state, bytes):
            # Latin-1 has a character for every byte, so none is lost.
            return {"grain-bytes": state.decode("latin-1")}
        return {"grain": state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a position that `get_state` returned."""
        if self._last is not None:
            self._last = state
        elif "grain-bytes" in state:
            self._iterator.set_state(state["grain-bytes"].encode("latin-1"))
        else:
            self._iterator.set_state(state["grain"])

    def close(self) -> None:
        """Ends Grain's threads and processes; the position can still be asked for."""
        # An iterator that failed may not tell its position; it must close all the same.
        with contextlib.suppress(Exception):
            self._last = self.get_state()
        # Some iterators have no `close`: their processes end with the last reference.
        # The empty one in its place makes a read after closing end at once.
        iterator, self._iterator = self._iterator, iter(())
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


@final
class GrainElements(GrainCursor):
    """The elements of one of Grain's iterators."""

    def read(self, count: int) -> list[Any]:
        """Returns the next elements."""
        return read(self._iterator, count)


def _unreadable_error(paths: Sequence[str], kind: str, reason: Exception) -> Exception:
    """Returns the error that names the files which a library cannot read."""
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        return errors.NotFoundError(f"{missing[0]}: No such file or directory.")
    return errors.DataLossError(
        f"{', '.join(paths)}: cannot be read as {kind}: {reason}. The file is damaged, "
        f"or is no {kind} file."
    )


@final
class _ParquetRows(cursors.Cursor):
    """The rows of several Parquet files, one file after the other."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._file = 0
        self._inner: GrainElements | None = None

    def _open(self) -> GrainElements:
        import grain

        if self._inner is None:
            dataset = grain.experimental.ParquetIterDataset(self._files[self._file])
            self._inner = GrainElements(iter(dataset))
        return self._inner

    def _read(self, count: int) -> list[Any]:
        try:
            return self._open().read(count)
        except Exception as e:
            # Arrow's exceptions are told by their module: pyarrow is not imported here.
            if not isinstance(e, OSError) and type(e).__module__ != "pyarrow.lib":
                raise
            raise _unreadable_error([self._files[self._file]], "Parquet", e) from e

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
class Parquet(nodes.Node):
    """A source of the rows of Parquet files; each row is a dict of columns."""

    files: tuple[str, ...]
    kind = "Parquet"
    cardinality = nodes.UNKNOWN
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over the rows, file after file."""
        return _ParquetRows(self.files)

    def _spec(self) -> elements.Spec:
        files = ", ".join(self.files)
        empty = (
            f"Parquet files without rows: {files}. Give files with at least one row."
        )
        return nodes.first_spec(self, empty)

    def __str__(self) -> str:
        return f"Parquet({len(self.files)} files)"


@final
class _Records:
    """The records of ArrayRecord files, which can be read in any order."""

    def __init__(self, source: Any, paths: Sequence[str]) -> None:
        self._source, self._paths = source, paths

    def element_at(self, index: int) -> object:
        return self._read([int(index)])[0]

    def _read(self, indices: list[int]) -> list[bytes]:
        try:
            found: list[bytes] = self._source.__getitems__(indices)
            return found
        except RuntimeError as e:
            raise _unreadable_error(self._paths, "ArrayRecord", e) from e

    def take(self, indices: np.ndarray, allocate: nodes.Allocate = np.empty) -> object:
        found = self._read([int(i) for i in indices])
        out = np.empty(len(found), object)
        out[:] = found
        return out

    def slice(self, start: int, stop: int) -> object:
        return self.take(np.arange(start, stop))


def _check_readable(path: str) -> None:
    """Raises if this file cannot be read by itself."""
    import grain

    try:
        grain.sources.ArrayRecordDataSource([path])
    except RuntimeError as e:
        raise _unreadable_error([path], "ArrayRecord", e) from e


@final
class ArrayRecord(nodes.RowSource):
    """A source of the records of ArrayRecord files, which are cheap in any order."""

    files: tuple[str, ...]
    kind = "ArrayRecord"

    @functools.cached_property
    def _source(self) -> Any:
        import grain

        try:
            return grain.sources.ArrayRecordDataSource(list(self.files))
        except RuntimeError as e:
            # Grain does not say which file is broken, so each is tried by itself.
            for path in self.files:
                _check_readable(path)
            raise _unreadable_error(self.files, "ArrayRecord", e) from e

    def rows(self) -> _Records:
        """Returns the records as rows."""
        return _Records(self._source, self.files)

    @property
    def cardinality(self) -> int:
        """Returns how many records the files have."""
        return len(self._source)

    def _spec(self) -> elements.Spec:
        return specs.TensorSpec((), object)

    def __str__(self) -> str:
        return f"ArrayRecord({len(self.files)} files)"


@final
class GrainLoader(iterables.Loader):
    """A source that reads a Grain pipeline; its iterators tell their position."""

    # Elements are passed on as Grain returns them, without a copy.
    makes_new = False

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over Grain's iterator."""
        allow_flags()
        return first_elements.watch(self, GrainElements(iter(self.source)))

    @property
    def cardinality(self) -> int:
        """Returns the length of the pipeline, if it has one."""
        return iterables.length(self.source)


@final
class _MapDatasetElements(GrainCursor):
    """The elements of a `MapDataset`, which Grain reads in threads."""

    def __init__(self, source: Any) -> None:
        # Its position is `next_index`, a plain number, which `_pass_over` can move.
        super().__init__(iter(source.to_iter_dataset()))
        self._total = len(source)

    def read(self, count: int) -> list[Any]:
        try:
            found = read(self._iterator, count)
        except Exception:
            self._pass_over()
            raise
        # Grain takes a user's StopIteration for the end; the next index tells it apart.
        if len(found) < count and self._last is None:
            index = self._iterator.get_state()["next_index"]
            if index < self._total:
                self._pass_over()
                raise cursors.stop_iteration_error(
                    f"Making element {index} of the MapDataset"
                )
        return found

    def _pass_over(self) -> None:
        """Moves past an element that could not be made.

        Grain itself would stay there, and raise at every read.
        """
        index = self._iterator.get_state()["next_index"]
        self._iterator.set_state({"next_index": index + 1})


@final
class GrainTable(iterables.Loader):
    """A source that reads a `MapDataset`, which knows its number of elements."""

    # Elements are passed on as Grain returns them, without a copy.
    makes_new = False

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that starts from the beginning."""
        allow_flags()
        return first_elements.watch(self, _MapDatasetElements(self.source))

    @property
    def cardinality(self) -> int:
        """Returns the length; unknown if a filter leaves some elements out."""
        total = len(self.source)
        # Grain gives an endless dataset the largest length that Python allows.
        if total >= sys.maxsize:
            return nodes.INFINITE
        return nodes.UNKNOWN if _is_filtered(self.source) else total


def _is_filtered(dataset: object) -> bool:
    """Whether the length counts elements that a filter leaves out."""
    return "Filter" in type(dataset).__name__ or any(
        map(_is_filtered, getattr(dataset, "parents", ()))
    )


def to_node(loader: object) -> nodes.Node | None:
    """Returns the plan of one of Grain's objects; None for anything else."""
    grain = sys.modules.get("grain")
    if grain is None:
        return None
    if isinstance(loader, grain.MapDataset):
        return GrainTable(loader)
    if isinstance(loader, (grain.IterDataset, grain.DataLoader)):
        return GrainLoader(loader)
    return None
