"""The plain data that coordinator, workers and servers send each other, and rows.

A key that ends with `OWN` stands for the value of the worker that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, final

import jax
import numpy as np

from unisono._src.state import rows

OWN = "@"
# The resource that stands for the worker's own number.
INDEX = -1
# The shapes and types of arrays.
ArrayShapes = tuple[tuple[tuple[int, ...], str], ...]


def describe_arrays(arrays: Iterable[np.ndarray | jax.Array]) -> ArrayShapes:
    """Returns the shapes and types of arrays, as plain data."""
    return tuple((x.shape, str(jax.dtypes.canonicalize_dtype(x.dtype))) for x in arrays)


@final
class Request(NamedTuple):
    """Asks a server for the value of a variable, or for some of its rows.

    Attributes:
        key: the variable's key on the server.
        rows: the positions of the rows, as an array of one axis; None for all.
        programs: the keys of programs that then change the variable, in one go with the
            reading: nobody else reads the same value.
    """

    key: str
    rows: np.ndarray | None = None
    programs: tuple[str, ...] = ()


@final
class Operation(NamedTuple):
    """A change of variables of one server, which the server computes.

    Attributes:
        kind: ``assign``, ``assign_add``, ``assign_sub``, ``scatter_…``, or ``program``.
        keys: the variables to change. Only a program may change more than one.
        operands: the arrays to change them by.
        program: for a program, the key under which the server knows it. It computes
            the new values from the old ones of `keys`, those of `reads` and `operands`.
        reads: for a program, variables that it needs besides.
        sparse: for a program, the places of two operands that are positions of rows and
            rows, and how many the program takes. Those that are absent do not travel.
        rows: for a program of some rows only, the place of each such variable among
            `keys` and `reads`, and the place of the operand with their positions.
    """

    kind: str
    keys: tuple[str, ...]
    operands: tuple[np.ndarray, ...]
    program: str = ""
    reads: tuple[str, ...] = ()
    sparse: tuple[tuple[int, int, int], ...] = ()
    rows: tuple[tuple[int, int], ...] = ()


@final
class Effect(NamedTuple):
    """An operation of a closure, whose operands its program computes.

    Attributes:
        server: the server that carries it out.
        operation: the operation, without operands.
        operands: the places of its operands among those that the program computes.
    """

    server: int
    operation: Operation
    operands: tuple[int, ...]


@final
class Lookup(NamedTuple):
    """The rows of a variable that a closure asks for while it runs.

    Attributes:
        server: the server that has them.
        key: the variable's key there.
    """

    server: int
    key: str


@final
class ExportedStage(NamedTuple):
    """A part of a closure's program, which runs without asking anyone.

    Attributes:
        program: the compiled function as `jax.export` writes it.
        lookups: what is asked of servers when it has run: its results are the positions
            of the rows. Empty for the last stage.
    """

    program: bytes
    lookups: tuple[Lookup, ...] = ()


@final
class ClosureProgram(NamedTuple):
    """The program of a closure, which every worker can run.

    The inputs of each stage are the values of `reads`, the arguments, the arrays of the
    elements that it takes from datasets, and the rows that earlier stages have asked
    for. The last stage gives the operands of `effects`, then the result.

    Attributes:
        key: tells programs apart.
        name: the name of the function.
        reads: the server and key of each variable that it uses whole, and the programs
            that change it when it has been read; see `Request`.
        shapes: for each element that it takes from a dataset, the shape and type of the
            element's arrays.
        stages: its parts, in order.
        effects: the changes of variables that it makes, in order.
        operands: how many arrays the last stage computes for them.
        checks: for each check of the function, the place of a number among the arrays
            of the last stage, and its value if the check has failed.
    """

    key: str
    name: str
    reads: tuple[tuple[int, str, tuple[str, ...]], ...]
    shapes: tuple[ArrayShapes, ...]
    stages: tuple[ExportedStage, ...]
    effects: tuple[Effect, ...]
    operands: int
    checks: tuple[tuple[int, int], ...] = ()


@final
class Job(NamedTuple):
    """A closure to run.

    Attributes:
        key: the key of its program.
        arguments: the arrays of its arguments.
        feeds: the worker's resource of each element that it takes from a dataset.
        closure: its number, if its changes must be made only once.
    """

    key: str
    arguments: list[np.ndarray]
    feeds: list[int]
    closure: int | None


@final
class Outcome(NamedTuple):
    """The result of one of several closures that ran together.

    Attributes:
        arrays: the arrays of its result.
        error: the error of a server that could not make its changes, if there was one.
    """

    arrays: list[np.ndarray]
    error: Exception | None = None


@final
class DatasetDescription(NamedTuple):
    """A worker's dataset, as the coordinator knows it.

    Attributes:
        spec: the spec of its elements; None if it has none.
        example: the structure of its first element; None if it has no element.
        shapes: the shapes and types of the arrays of that element.
    """

    spec: object
    example: object = None
    shapes: ArrayShapes = ()


@final
class FailedChecks(NamedTuple):
    """Says that a check of a function has failed; nothing was changed.

    Attributes:
        arrays: what the program has given.
    """

    arrays: list[np.ndarray]


@final
class OtherShapes(NamedTuple):
    """Says that a program was not made for elements of such shapes; nothing was done.

    Attributes:
        shapes: for each element, the shape and type of its arrays.
    """

    shapes: tuple[ArrayShapes, ...]


@final
class UniqueRows:
    """Positions of rows, without those that are absent or asked for twice.

    Args:
        places: the positions, of any shape; `rows.ABSENT` for none.

    Attributes:
        rows: the positions to ask a server for.
    """

    def __init__(self, places: np.ndarray) -> None:
        self._shape = places.shape
        flat = places.reshape(-1)
        self._present = flat != rows.ABSENT
        self.rows, self._number = np.unique(flat[self._present], return_inverse=True)

    def expand(self, found: np.ndarray) -> np.ndarray:
        """Returns a row for each position, zeros for those that are absent.

        Args:
            found: the rows that the server has sent.
        """
        made = np.zeros((self._present.size, *found.shape[1:]), found.dtype)
        made[self._present] = found[self._number]
        return made.reshape(*self._shape, *found.shape[1:])


def pack(operation: Operation) -> Operation:
    """Returns an operation without the rows that change nothing, as it travels.

    Rows with the same position are added up.
    """
    if operation.kind in ("scatter_add", "scatter_sub"):
        return operation._replace(operands=_join(*operation.operands))
    if not operation.sparse:
        return operation
    operands = list(operation.operands)
    for i, j, _ in operation.sparse:
        operands[i], operands[j] = _join(operands[i], operands[j])
    return operation._replace(operands=tuple(operands))


def unpack(operation: Operation) -> list[np.ndarray]:
    """Returns the operands of an operation that has travelled, as its program needs."""
    operands = list(operation.operands)
    for i, j, count in operation.sparse:
        # The program was compiled for `count` rows; absent ones change nothing.
        missing = count - len(operands[i])
        absent = np.full(missing, rows.ABSENT, operands[i].dtype)
        zeros = np.zeros((missing, *operands[j].shape[1:]), operands[j].dtype)
        operands[i] = np.concatenate([operands[i], absent])
        operands[j] = np.concatenate([operands[j], zeros])
    return operands


def _join(places: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions, each once and none that is absent, and the sums of rows."""
    if places.ndim != 1 or values.shape[:1] != places.shape:
        return places, values
    present = places != rows.ABSENT
    kept, own = places[present], values[present]
    found, number = np.unique(kept, return_inverse=True)
    if len(found) == len(kept):
        # No position occurs twice: the order stays, and nothing is copied again.
        return kept, own
    total = np.zeros((len(found), *values.shape[1:]), values.dtype)
    np.add.at(total, number, own)
    return found, total
