"""State that other processes keep: what is asked of them, as one interface.

Parameter servers implement it (`RemoteState`, in the room `servers`). All rooms between
reach servers by these classes only.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from unisono._src.foundation import row_files

if TYPE_CHECKING:
    import jax
    import optax
    from jax.typing import ArrayLike

    from unisono._src.foundation.jax_internals import ClosedProgram
    from unisono._src.state.storage import Cell
    from unisono._src.state.variables import Variable


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

    group: RemoteState
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

    cells: tuple[Cell, ...]
    kind: str
    operands: tuple[Any, ...]
    program: ClosedProgram | None = None
    reads: tuple[Cell, ...] = ()
    server: int | None = None
    sparse: tuple[tuple[int, int, int], ...] = ()
    rows: tuple[tuple[int, int], ...] = ()
    is_draw: bool = False

    @property
    def servers(self) -> tuple[int, ...]:
        """The servers that must make the change."""
        if self.server is not None:
            return (self.server,)
        return home_of(self.cells[0]).servers


def home_of(cell: Cell) -> Home:
    """Returns where servers keep a cell, which is on servers."""
    assert cell.home is not None
    return cell.home


def keys_of(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Returns by which keys servers know cells."""
    return tuple(home_of(cell).key for cell in cells)


# For some cells, the changes that belong to a reading of their values.
Draws = Mapping["Cell", Sequence[Change]]
NO_DRAWS: Draws = types.MappingProxyType({})
# For some cells, where their rows are in the files of a checkpoint.
Places = Mapping["Cell", row_files.Place]


class RemoteSnapshot(abc.ABC):
    """The values that variables on servers had at one moment; abstract.

    Attributes:
        values: those that are needed here, by cell.
        closures: the closures whose changes are in the values and may come again, in a
            form that JSON has; empty if there are none.
    """

    values: dict[Cell, Any]
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


class RemoteUpdate(abc.ABC):
    """The slots of an optimizer on servers, and its updates there; abstract.

    Attributes:
        treedef: the structure of Optax's state.
    """

    treedef: jax.tree_util.PyTreeDef

    @abc.abstractmethod
    def make_slots(self, name: str) -> list[Variable]:
        """Returns the variables of Optax's state; servers compute their first values.

        Args:
            name: the prefix of their names.
        """

    @abc.abstractmethod
    def join_parts(self, slots: Sequence[Variable]) -> list[Any]:
        """Returns slots with those of the parts of a variable as one."""

    @abc.abstractmethod
    def apply(
        self,
        change: UpdateFunction,
        cells: Sequence[Cell],
        gradients: Sequence[Any],
        idle: tuple[int, ...],
    ) -> None:
        """Lets the servers update variables and slots.

        Args:
            change: see `UpdateFunction`.
            cells: those of variables, slots and the count of updates.
            gradients: an array or `IndexedSlices` for each variable.
            idle: the positions of variables that have none.
        """


# A function from the values of cells, and gradients, to the new values of the cells.
UpdateFunction = Callable[[list[Any], list[Any]], list[Any]]


class RemoteState(abc.ABC):
    """All parameter servers of a strategy, as other rooms use them; abstract.

    Attributes:
        count: how many servers there are.
    """

    count: int

    # Variables.

    @abc.abstractmethod
    def place(self, cell: Cell) -> Home:
        """Returns where a new variable goes."""

    @abc.abstractmethod
    def move(self, cell: Cell, home: Home) -> None:
        """Moves a variable to other servers, before any program uses it.

        Args:
            cell: the variable.
            home: has the servers that it goes to.
        """

    @abc.abstractmethod
    def create(self, cell: Cell, value: ArrayLike | None) -> None:
        """Gives a variable its first value; zeros if it is None."""

    @abc.abstractmethod
    def read(self, cells: Sequence[Cell], draws: Draws = NO_DRAWS) -> list[jax.Array]:
        """Returns the values of variables, as arrays on this process's device.

        Args:
            cells: the variables.
            draws: for some of them, what changes the value when it has been read.
        """

    @abc.abstractmethod
    def read_rows(self, cell: Cell, rows: ArrayLike) -> jax.Array:
        """Returns some rows of a variable."""

    @abc.abstractmethod
    def apply(self, changes: Sequence[Change]) -> None:
        """Lets servers change variables, and returns when they have done so."""

    # Programs.

    @abc.abstractmethod
    def stage(self, closed: ClosedProgram, name: str) -> Callable[[Sequence[Any]], Any]:
        """Returns a function that runs a program which looks rows of variables up.

        Args:
            closed: the program.
            name: the name of the function, for messages.

        Raises:
            ValueError: rows are asked for in a loop or branch.
        """

    @abc.abstractmethod
    def make_update(
        self,
        variables: Sequence[Variable],
        tx: optax.GradientTransformation,
        groups: Sequence[int],
    ) -> RemoteUpdate:
        """Returns the slots and updates of variables that servers keep.

        Args:
            variables: the variables, part by part; servers keep them all.
            tx: the transformation.
            groups: the number of parts of each variable; 1 for one that is whole.
        """

    @abc.abstractmethod
    def plan_update(
        self,
        optimizer: object,
        change: UpdateFunction,
        cells: Sequence[Cell],
        gradients: Sequence[jax.ShapeDtypeStruct],
        owners: Sequence[int],
        unknown: Sequence[str] = (),
    ) -> Callable[[Sequence[Any]], None] | None:
        """Returns a function of gradients that lets servers update variables.

        Args:
            optimizer: whose update it is. The plan is kept for as long as it lives.
            change: see `UpdateFunction`.
            cells: the cells.
            gradients: the shape and type of each gradient.
            owners: for each gradient, the position of the cell that it is for.
            unknown: the names of further arguments, which servers do not have.

        Returns:
            None if servers cannot compute the update: that of one server needs
            variables of another one. A warning says so, once.
        """

    @abc.abstractmethod
    def load_fit(self) -> Callable[..., Any]:
        """Returns the function that trains a Keras model on the workers.

        Its arguments are the model, which was made and compiled in the strategy's
        scope; the strategy; a function that makes a block in which Keras' own programs
        use the model; and the arguments of `keras.Model.fit`.
        """

    # Checkpoints.

    @abc.abstractmethod
    def hold(self, cells: Sequence[Cell], wanted: Collection[Cell]) -> RemoteSnapshot:
        """Keeps the values that variables have now, for a checkpoint.

        Args:
            cells: the variables.
            wanted: those of them whose values are needed here.
        """

    @abc.abstractmethod
    def check_seen(self, cells: Sequence[Cell], path: pathlib.Path, mark: str) -> None:
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
        """Tells servers which closures the restored values have.

        Args:
            closures: as `RemoteSnapshot` has them.
        """


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
    changes: Sequence[Change], read: Collection[Cell]
) -> tuple[dict[Cell, list[Change]], list[Change]]:
    """Returns the changes that can be made when a program begins, and the others.

    Args:
        changes: the changes that a program makes, in order.
        read: the cells that it reads when it begins.
    """
    draws: dict[Cell, list[Change]] = {}
    rest: list[Change] = []
    settled: set[Cell] = set()
    for change in changes:
        cell = change.cells[0]
        if change.is_draw and cell in read and cell not in settled:
            draws.setdefault(cell, []).append(change)
        else:
            # A draw after another change needs the value that this one has made.
            settled.update(change.cells)
            rest.append(change)
    return draws, rest


def read_all(cells: Sequence[Cell], draws: Draws = NO_DRAWS) -> list[Any]:
    """Returns the arrays of cells; those on servers are asked for together.

    Args:
        cells: the cells.
        draws: see `RemoteState.read`.
    """
    remote = [c for c in cells if c.home is not None]
    found = home_of(remote[0]).group.read(remote, draws) if remote else []
    by_cell = dict(zip(remote, found, strict=True))
    return [c.array if c.home is None else by_cell[c] for c in cells]


def apply_all(changes: Sequence[Change]) -> None:
    """Lets servers make changes, if there are any."""
    if changes:
        home_of(changes[0].cells[0]).group.apply(changes)


def read_once(cell: Cell, source: Any, kept: dict[Any, Any]) -> Any:
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
