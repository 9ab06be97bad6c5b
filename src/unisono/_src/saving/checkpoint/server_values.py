"""Variables on parameter servers in checkpoints; servers write and read large ones.

This process never holds such a table whole, so a table may be larger than it.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, final

import numpy as np

from unisono._src.foundation import library_hooks, row_files
from unisono._src.saving.checkpoint import array_io
from unisono._src.saving.checkpoint.variable_parts import VariableInParts
from unisono._src.saving.format import manifest
from unisono._src.state import remote_state
from unisono._src.state.variables import Variable
from unisono._src.values import collectives


@final
class RemoteArray(NamedTuple):
    """A value that servers write; it stands for its array in a snapshot.

    Attributes:
        cells: its parts, in order.
        shape: the shape of the whole.
        dtype: the type of the elements.
    """

    cells: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape))

    def places(self, name: str, is_new: bool) -> dict[Any, row_files.Place]:
        """Returns the place of each part's rows in a stored array.

        Args:
            name: the name of the stored array.
            is_new: whether the array is to be written.
        """
        parts, itemsize = len(self.cells), self.dtype.itemsize
        chunk = row_files.count_chunk_rows(self.shape, itemsize, parts) if is_new else 0
        found, start = {}, 0
        for cell in self.cells:
            found[cell] = row_files.Place(name, self.shape, start, chunk)
            start += cell.shape[0]
        return found


def _cells(obj: Any) -> tuple[Any, ...]:
    """Returns the cells of an object that servers keep; none if it is elsewhere."""
    if isinstance(obj, VariableInParts):
        variables = obj.owner.variables
    else:
        kept = (
            obj.strategy_variable
            if isinstance(obj, library_hooks.LibraryVariable)
            else obj
        )
        variables = [kept] if isinstance(kept, Variable) else []
    cells = tuple(v.state_cell for v in variables)
    # A variable with a value for each worker has no one value to save.
    is_there = all(c.home is not None and not c.home.workers for c in cells)
    return cells if is_there else ()


def find_remote_array(obj: Any) -> RemoteArray | None:
    """Returns the value of an object that servers write and read themselves.

    Returns None if it is not on servers, or so small that sending it takes less time.
    """
    cells = _cells(obj)
    if not cells or collectives.is_key(obj):
        return None
    found = RemoteArray(cells, tuple(obj.shape), np.dtype(obj.dtype))
    # A value that several servers keep is small: the count of steps, for example.
    is_once = all(len(c.home.servers) == 1 for c in cells)
    is_large = found.size * found.dtype.itemsize >= array_io.LARGE_BYTES
    return found if is_once and is_large else None


@final
class ServerStateSnapshot:
    """The values that variables on servers had at one moment.

    Args:
        objects: all objects of a checkpoint; others do not matter.

    Attributes:
        closures: see `remote_state.RemoteSnapshot`.
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        self._values: dict[Any, Any] = {}
        self._held: dict[Any, remote_state.RemoteSnapshot] = {}
        self.closures: dict[str, Any] = {}
        by_group: dict[Any, list[Any]] = {}
        small: set[Any] = set()
        for obj in objects:
            for cell in _cells(obj):
                by_group.setdefault(cell.home.group, []).append(cell)
                # Small values come with the answer; large ones
                # stay and are written there.
                if find_remote_array(obj) is None:
                    small.add(cell)
        try:
            for group, cells in by_group.items():
                held = group.hold(cells, small.intersection(cells))
                self._held[group] = held
                self._values |= held.values
                self.closures |= held.closures
        except BaseException:
            self.release()
            raise

    def read(self, obj: Any) -> Any:
        """Returns an object's value, or its `RemoteArray`; None if it is not held."""
        cells = _cells(obj)
        if not cells:
            return None
        remote = find_remote_array(obj)
        if remote is not None:
            return remote
        found = [self._values[c] for c in cells]
        return np.concatenate(found) if len(found) > 1 else found[0]

    def write(self, directory: pathlib.Path, wanted: Mapping[str, RemoteArray]) -> None:
        """Lets servers write values.

        Args:
            directory: the folder of the arrays.
            wanted: by the name of the stored array, what stands for its value.
        """
        for group, places in _group_places(wanted.items(), is_new=True).items():
            self._held[group].write(directory, places)

    def release(self) -> None:
        """Lets servers forget the values; another call does nothing."""
        for held in self._held.values():
            held.release()
        self._held = {}


def _group_places(
    named: Iterable[tuple[str, RemoteArray]], is_new: bool
) -> dict[Any, Any]:
    """Returns the places of parts in stored arrays, by the group of their servers."""
    found: dict[Any, dict[Any, row_files.Place]] = {}
    for name, remote in named:
        group = remote.cells[0].home.group
        found.setdefault(group, {}).update(remote.places(name, is_new))
    return found


def check_seen(
    checkpoint: pathlib.Path, found: manifest.Manifest, objects: Iterable[Any]
) -> None:
    """Raises unless the servers of objects see a checkpoint.

    Args:
        checkpoint: its path.
        found: its manifest.
        objects: variables.

    Raises:
        FailedPreconditionError: a server does not see it.
    """
    by_group: dict[remote_state.RemoteState, list[Any]] = {}
    for cell in (cell for obj in objects for cell in _cells(obj)):
        by_group.setdefault(cell.home.group, []).append(cell)
    for group, cells in by_group.items():
        group.check_seen(cells, checkpoint / manifest.NAME, found.digest)


def load(checkpoint: pathlib.Path, wanted: Iterable[tuple[str, RemoteArray]]) -> None:
    """Lets servers read values from a checkpoint.

    Args:
        checkpoint: its path.
        wanted: the name of each stored array, and the parts that it goes to.
    """
    for group, places in _group_places(wanted, is_new=False).items():
        group.load(checkpoint / manifest.ARRAYS, places)


def remember(found: manifest.Manifest, objects: Iterable[Any]) -> None:
    """Tells servers which closures are in the values of a checkpoint."""
    groups = {cell.home.group for obj in objects for cell in _cells(obj)}
    for group in groups:
        group.remember(found.closures)


@contextlib.contextmanager
def release_on_error(held: ServerStateSnapshot) -> Iterator[ServerStateSnapshot]:
    """Lets servers forget the values if the block raises."""
    try:
        yield held
    except BaseException:
        held.release()
        raise
