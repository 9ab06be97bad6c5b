"""Variables that workers have in parts, as checkpoints see them.

Each worker writes and reads its own parts, so none ever has such a variable whole. See
docs/decisions/0039.
"""

from __future__ import annotations

import pathlib
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple, final

import jax
import numpy as np

from unisono._src.foundation import library_hooks
from unisono._src.machines.partition import Split
from unisono._src.machines.topology import Topology
from unisono._src.saving.format import part_files
from unisono._src.state import frames, mirroring, reading, storage
from unisono._src.state.variables import Variable
from unisono._src.values import part_exchange


@final
class PartedArray(NamedTuple):
    """The value of a variable of which workers have parts; in a snapshot.

    Attributes:
        array: the array, of which other processes have parts, too.
        split: how it is cut.
        topology: the replicas of all workers.
    """

    array: jax.Array
    split: Split
    topology: Topology

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return np.dtype(self.array.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.array.size)

    @property
    def is_joint(self) -> bool:
        """Whether no worker has all parts, so that several must write."""
        return part_exchange.is_apart(self.topology, self.split)

    def marks(self) -> dict[int, int]:
        """Returns a checksum of each part that is here, by its number."""
        parts = part_exchange.own_parts(self.array, self.split)
        # The bits, because NaN differs from itself and 0.0 equals -0.0.
        return {
            i: zlib.crc32(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
            for i, x in parts.items()
        }

    def write(self, directory: pathlib.Path, name: str) -> None:
        """Writes parts to a database: all of them, or those that are this worker's.

        Args:
            directory: the folder of this worker's database.
            name: the name of the stored array.
        """
        own = part_exchange.own_parts(self.array, self.split)
        if self.is_joint:
            # Of the workers that have a part the first one writes it.
            holders = part_exchange.find_holders(self.topology, self.split)
            before = {i for parts in holders[: self.topology.worker] for i in parts}
            own = {i: x for i, x in own.items() if i not in before}
        axis, count = self.split.axis, self.split.parts
        size = self.shape[axis] // count
        for i, x in own.items():
            chunks = part_files.choose_chunks(x.shape, axis, self.dtype.itemsize)
            start = tuple(i * size if a == axis else 0 for a in range(x.ndim))
            values = np.asarray(x)
            part_files.write(directory, name, self.shape, chunks, start, values)


def find_variable(obj: object) -> Variable | None:
    """Returns the variable of a strategy that an object is, or that keeps its value."""
    if isinstance(obj, library_hooks.LibraryVariable):
        obj = obj.strategy_variable
    return obj if isinstance(obj, Variable) else None


def find_cut_cell(obj: object) -> storage.Cell | None:
    """Returns the cell of an object's value if it is cut over devices, else None."""
    variable = find_variable(obj)
    if variable is None or variable.replica_index is not None:
        return None
    cell = variable.state_cell
    is_known = cell.array is not None and not frames.frame().is_compiled
    return cell if cell.split is not None and is_known else None


def settle(objects: Iterable[object]) -> None:
    """Stores what replicas have written in turn; a meeting of all workers."""
    cells = filter(None, map(find_cut_cell, objects))
    mirroring.settle([c for c in cells if c.is_spread])


def read_wholes(objects: Iterable[object]) -> dict[int, np.ndarray]:
    """Returns the values that no worker has all parts of; a meeting of all workers.

    Returns:
        The values by the id of their objects.
    """
    found: dict[int, np.ndarray] = {}
    for obj in objects:
        cell, variable = find_cut_cell(obj), find_variable(obj)
        if cell is not None and cell.is_apart and variable is not None:
            found[id(obj)] = reading.read_on_host(variable)
    return found


def read(obj: object) -> jax.Array | PartedArray | None:
    """Returns the stored array of a value that is cut over devices, else None."""
    cell, variable = find_cut_cell(obj), find_variable(obj)
    if cell is None or variable is None:
        return None
    array = reading.read_stored(variable)
    if not cell.is_spread:
        return array
    return PartedArray(array, cell.split, cell.topology)
