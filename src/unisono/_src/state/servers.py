"""Variables that parameter servers keep: where they are, and how they are changed."""

from __future__ import annotations

import abc
import dataclasses
import pathlib
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

from unisono._src.foundation import row_files


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Home:
    """The place of a variable on parameter servers.

    Attributes:
        group: all servers.
        key: by which the servers know the variable.
        servers: the numbers of the servers that have it. It is one, except for small
            state that an optimizer needs on each server.
        workers: for a variable with a value for each worker, their number; else 0. The
            key of a worker's value ends with its number.
    """

    group: ServerGroup
    key: str
    servers: tuple[int, ...]
    workers: int = 0


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Change:
    """A change of variables that servers compute, in the order in which it arrives.

    A value that was read is never written back: other workers may have changed the
    variable since.

    Attributes:
        cells: the cells that it changes. Only a program changes more than one.
        kind: ``assign``, ``assign_add``, ``assign_sub``, ``scatter_…`` or ``program``.
        operands: the arrays to change them by.
        program: for a program, its closed jaxpr: from the values of `cells`, of `reads`
            and `operands` to the new values of `cells`.
        reads: for a program, cells that it needs besides.
        server: for a program, the server that runs it.
        sparse: for a program, the places of two operands that are positions of rows and
            rows to add there, and how many there are.
        rows: for a program that computes some rows only: the place of each such cell
            among `cells` and `reads`, and the place of the operand that is the
            positions of its rows. The program does not have that operand.
        is_draw: whether it belongs to a reading of the value: the server makes both in
            one go, so that nobody else reads the same value. It has no operands.
    """

    cells: tuple[Any, ...]
    kind: str
    operands: tuple[Any, ...]
    program: Any = None
    reads: tuple[Any, ...] = ()
    server: int | None = None
    sparse: tuple[tuple[int, int, int], ...] = ()
    rows: tuple[tuple[int, int], ...] = ()
    is_draw: bool = False

    @property
    def servers(self) -> tuple[int, ...]:
        """The servers that must make the change."""
        if self.server is not None:
            return (self.server,)
        found: tuple[int, ...] = self.cells[0].home.servers
        return found


# For some cells, the changes that belong to a reading of their values.
Draws = Mapping[Any, Sequence[Change]]
NO_DRAWS: Draws = types.MappingProxyType({})
# For some cells, where their rows are in the files of a checkpoint.
Places = Mapping[Any, row_files.Place]


class HeldValues(abc.ABC):
    """The values that variables on servers had at one moment; abstract.

    Attributes:
        values: those that are needed here, by cell.
        closures: the closures whose changes are in the values and may come again, in a
            form that JSON has; empty if there are none.
    """

    values: dict[Any, Any]
    closures: dict[str, Any]

    @abc.abstractmethod
    def write(self, directory: pathlib.Path, places: Places) -> None:
        """Lets servers write values to the folder of a checkpoint's arrays.

        Raises:
            FailedPreconditionError: a server does not see the folder.
        """

    @abc.abstractmethod
    def release(self) -> None:
        """Lets the values go. It may be called again."""


class ServerGroup(abc.ABC):
    """All parameter servers of a strategy, as variables use them; abstract."""

    @abc.abstractmethod
    def place(self, cell: Any) -> Home:
        """Returns where a new variable goes."""

    @abc.abstractmethod
    def create(self, cell: Any, value: Any) -> None:
        """Gives a variable its first value; zeros if it is None."""

    @abc.abstractmethod
    def read(self, cells: Sequence[Any], draws: Draws = NO_DRAWS) -> list[Any]:
        """Returns the values of variables, as arrays on this process's device.

        Args:
            cells: the variables.
            draws: for some of them, what changes the value when it has been read.
        """

    @abc.abstractmethod
    def read_rows(self, cell: Any, rows: Any) -> Any:
        """Returns some rows of a variable."""

    @abc.abstractmethod
    def apply(self, changes: Sequence[Change]) -> None:
        """Lets servers change variables, and returns when they have done so."""

    @abc.abstractmethod
    def hold(self, cells: Sequence[Any], wanted: Collection[Any]) -> HeldValues:
        """Keeps the values that variables have now, for a checkpoint.

        Args:
            cells: the variables.
            wanted: those of them whose values are needed here.
        """

    @abc.abstractmethod
    def check_seen(self, cells: Sequence[Any], path: pathlib.Path, mark: str) -> None:
        """Raises unless the servers of variables see a file.

        Args:
            cells: the variables.
            path: the file.
            mark: how the file begins.

        Raises:
            FailedPreconditionError: a server does not see it.
        """

    @abc.abstractmethod
    def load(self, directory: pathlib.Path, places: Places) -> None:
        """Lets servers read values from the folder of a checkpoint's arrays."""

    @abc.abstractmethod
    def remember(self, closures: Mapping[str, Any]) -> None:
        """Tells servers which closures the restored values have; see `HeldValues`."""


def find_home(frame: Any) -> Any:
    """Returns where to keep a variable that must not be cut into parts.

    It is beside what the running code asks for, or else anywhere on the parameter
    servers. A partitioner does not cut a variable that is kept beside something.

    Args:
        frame: the running context.
    """
    placement = frame.placement
    if frame.colocate is not None or placement is None or placement.servers is None:
        return frame.colocate
    return Home(placement.servers, "", ())


def split_draws(
    changes: Sequence[Change], read: Collection[Any]
) -> tuple[dict[Any, list[Change]], list[Change]]:
    """Returns the changes that can be made when a program begins, and the others.

    Args:
        changes: the changes that a program makes, in order.
        read: the cells that it reads when it begins.
    """
    draws: dict[Any, list[Change]] = {}
    rest: list[Change] = []
    settled: set[Any] = set()
    for change in changes:
        cell = change.cells[0]
        if change.is_draw and cell in read and cell not in settled:
            draws.setdefault(cell, []).append(change)
        else:
            # A draw after another change needs the value that this one has made.
            settled.update(change.cells)
            rest.append(change)
    return draws, rest


def read_all(cells: Sequence[Any], draws: Draws = NO_DRAWS) -> list[Any]:
    """Returns the arrays of cells; those on servers are asked for together.

    Args:
        cells: the cells.
        draws: see `ServerGroup.read`.
    """
    remote = [c for c in cells if c.home is not None]
    found = remote[0].home.group.read(remote, draws) if remote else []
    by_cell = dict(zip(remote, found, strict=True))
    return [c.array if c.home is None else by_cell[c] for c in cells]


def apply_all(changes: Sequence[Change]) -> None:
    """Lets servers make changes, if there are any."""
    if changes:
        changes[0].cells[0].home.group.apply(changes)


def read_once(cell: Any, source: Any, kept: dict[Any, Any]) -> Any:
    """Returns the value of a cell that was read first in a block of cached reads.

    Args:
        cell: the cell.
        source: the frame that reads it.
        kept: the values that the block keeps.
    """
    # A value of one program means nothing in another.
    key = (cell, id(source))
    if key not in kept:
        kept[key] = source.whole(cell)
    return kept[key]
