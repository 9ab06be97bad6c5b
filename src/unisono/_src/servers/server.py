"""A parameter server: keeps variables, and computes their changes in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors, row_files
from unisono._src.servers import messages
from unisono._src.servers.messages import Operation, Request
from unisono._src.values import exported


@final
class ParameterServer:
    """Keeps variables of a strategy, or parts of them, and changes them.

    A carrier runs it in a thread or a process of its own and calls its methods. Changes
    are made one after the other in the order in which they arrive.

    Args:
        index: the number of this server, from 0.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._values: dict[str, np.ndarray] = {}
        self._programs: dict[str, bytes] = {}
        # The closures whose changes were made here and that may still be sent again.
        self._made: set[int] = set()
        # By number, the values that a checkpoint needs; see `hold`.
        self._held: dict[int, dict[str, np.ndarray]] = {}
        # A carrier may let several callers in at once.
        self._lock = threading.RLock()

    def ping(self) -> int:
        """Returns the number of this server, which shows that it answers."""
        return self._index

    def create(self, key: str, value: np.ndarray | tuple[tuple[int, ...], str]) -> None:
        """Begins to keep a variable.

        Args:
            key: the variable's key, by which all other calls name it.
            value: its first value; or its shape and type, for zeros.
        """
        with self._lock:
            if isinstance(value, np.ndarray):
                # A copy: changes are made in place, and with threads the caller has
                # `value`.
                self._values[key] = np.array(value)
            else:
                self._values[key] = np.zeros(value[0], jnp.dtype(value[1]))

    def drop(self, keys: Sequence[str]) -> None:
        """Forgets variables that nobody can name any more."""
        with self._lock:
            for key in keys:
                self._values.pop(key, None)

    def add_program(self, key: str, data: bytes) -> None:
        """Takes the program of an update, which operations then name by its key."""
        with self._lock:
            self._programs[key] = data

    def pull(self, requests: Sequence[Request]) -> list[np.ndarray]:
        """Returns the values, or rows, that are asked for, all of one moment.

        The programs that requests name run in the same moment: the lock is held.
        """
        # First all values, then the draws, so that all values are of one moment.
        asked = [Request(*r) for r in requests]
        with self._lock:
            # Changes are made in place, so what leaves is a copy, as rows are.
            found = [
                self._read(r).copy() if r.rows is None else self._read(r) for r in asked
            ]
            for request in asked:
                for program in request.programs:
                    self._run(Operation("program", (request.key,), (), program))
            return found

    def _read(self, request: Request) -> np.ndarray:
        value = self._find(request.key)
        if request.rows is None:
            return value
        # A position outside the variable gives zeros, as on TensorFlow's accelerators.
        rows = np.asarray(request.rows)
        inside = (rows >= 0) & (rows < len(value))
        if inside.all():
            found: np.ndarray = value[rows]
            return found
        if not len(value):
            return np.zeros((len(rows), *value.shape[1:]), value.dtype)
        found = value[np.where(inside, rows, 0)]
        found[~inside] = 0
        return found

    def _find(self, key: str) -> np.ndarray:
        try:
            return self._values[key]
        except KeyError:
            raise errors.FailedPreconditionError(
                f"The parameter server {self._index} has no variable '{key}'. It was "
                "started again, and nothing was restored on it."
            ) from None

    def push(self, operations: Sequence[Operation], closure: int | None = None) -> None:
        """Changes variables.

        Args:
            operations: the changes, in order.
            closure: the number of the closure that makes them, if they must be made
                once however often the closure runs. See `confirm`.
        """
        with self._lock:
            if closure is not None and closure in self._made:
                return
            for operation in operations:
                self._change(Operation(*operation))
            if closure is not None:
                self._made.add(closure)

    def exchange(
        self, pushes: Sequence[tuple[Any, Any]], requests: Sequence[Request]
    ) -> tuple[list[Exception | None], list[np.ndarray]]:
        """Makes the changes of several closures, then returns values.

        Args:
            pushes: for each closure, the arguments of `push`.
            requests: see `pull`.

        Returns:
            For each closure the error of its changes, or None; and the values.
        """
        failed: list[Exception | None] = []
        for push in pushes:
            try:
                self.push(*push)
            except Exception as error:
                # The changes of other closures do not depend on it.
                failed.append(error)
            else:
                failed.append(None)
        return failed, self.pull(requests)

    def _change(self, operation: Operation) -> None:
        if operation.kind == "program":
            self._run(operation)
            return
        (key,) = operation.keys
        old = self._find(key)
        if operation.kind == "assign":
            (new,) = operation.operands
            self._values[key] = np.array(new, old.dtype)
            return
        if not old.flags.writeable:
            # A checkpoint holds it, or a program made it and its memory is JAX's.
            old = self._values[key] = old.copy()
        _OPERATIONS[operation.kind](old, *operation.operands)

    def _run(self, operation: Operation) -> None:
        """Changes variables by a program."""
        program = exported.load(self._programs[operation.program])
        operands = messages.unpack(operation)
        # The positions of the rows of variables of which only some rows are computed.
        rows = {i: operands[place] for i, place in operation.rows}
        apart = {place for _, place in operation.rows}
        rest = [x for i, x in enumerate(operands) if i not in apart]
        keys = (*operation.keys, *operation.reads)
        # Some rows of a variable, or all of it. Reading does not copy a whole: the
        # program is done before the next change.
        given = [self._read(Request(k, rows.get(i))) for i, k in enumerate(keys)]
        found = program(*given, *rest)
        for i, (key, value) in enumerate(zip(operation.keys, found, strict=True)):
            if i in rows:
                self._replace_rows(key, rows[i], np.asarray(value))
            else:
                self._values[key] = np.asarray(value)

    def _replace_rows(self, key: str, rows: np.ndarray, values: np.ndarray) -> None:
        old = self._find(key)
        if not old.flags.writeable:
            old = self._values[key] = old.copy()
        _scatter_update(old, rows, values)

    def confirm(self, closures: Sequence[int]) -> None:
        """Forgets closures that have ended: nobody sends their changes again."""
        with self._lock:
            self._made.difference_update(closures)

    def describe(self) -> dict[str, tuple[tuple[int, ...], str, int]]:
        """Returns the shape, type and bytes of each variable, by its key."""
        with self._lock:
            return {
                k: (x.shape, str(x.dtype), x.nbytes) for k, x in self._values.items()
            }

    # Checkpoints.

    def hold(
        self, number: int, keys: Sequence[str], wanted: Sequence[str]
    ) -> tuple[list[int], list[np.ndarray]]:
        """Keeps the values of this moment for a checkpoint, until `release`.

        Nothing is copied: a change makes a copy of a value that is held.

        Args:
            number: by which `write` and `release` name what is held.
            keys: the variables.
            wanted: some of them, whose values are returned.

        Returns:
            The closures that are remembered, and copies of the wanted values.
        """
        with self._lock:
            self._held[number] = held = {k: self._find(k) for k in keys}
            for value in held.values():
                value.flags.writeable = False
            return sorted(self._made), [held[k].copy() for k in wanted]

    def write(
        self, number: int, directory: str, places: dict[str, row_files.Place]
    ) -> dict[str, list[row_files.Rows]]:
        """Writes values that are held to a folder of the checkpoint.

        Args:
            number: see `hold`.
            directory: the folder, which no other server writes to.
            places: by key, where its rows are in the checkpoint.

        Returns:
            By key, the rows that the coordinator must write.
        """
        # Without the lock, which changes of variables need: nobody writes to what is
        # held.
        held = self._held[number]
        os.mkdir(directory)
        return {
            key: row_files.write(directory, row_files.Place(*place), held[key])
            for key, place in places.items()
        }

    def release(self, number: int) -> None:
        """Lets go of values that were held, so that they can be changed in place."""
        with self._lock:
            gone = self._held.pop(number, {}).values()
            kept = {id(x) for held in self._held.values() for x in held.values()}
            for value in gone:
                # Results of programs stay read-only: JAX owns their memory.
                if value.flags.owndata and id(value) not in kept:
                    value.flags.writeable = True

    def sees(self, path: str, beginning: bytes) -> bool:
        """Whether this server sees a folder, or a file with a certain beginning."""
        if not beginning:
            return os.path.isdir(path)
        try:
            with open(path, "rb") as file:
                return file.read(len(beginning)) == beginning
        except OSError:
            return False

    def load(self, directory: str, places: dict[str, row_files.Place]) -> None:
        """Reads the rows of variables from a checkpoint.

        Args:
            directory: the folder of its arrays.
            places: by key, where its rows are in the checkpoint.
        """
        with self._lock:
            for key, place in places.items():
                value = self._find(key)
                if not value.flags.writeable:
                    value = np.empty(value.shape, value.dtype)
                row_files.read(directory, row_files.Place(*place), value)
                self._values[key] = value

    def remember(self, closures: Sequence[int]) -> None:
        """Notes the closures whose changes are in the values that were restored."""
        with self._lock:
            self._made = set(closures)


def _existing_rows(
    old: np.ndarray, rows: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions that exist, counted from 0, and the values for them."""
    rows = np.asarray(rows)
    inside = (rows >= 0) & (rows < len(old))
    if inside.all():
        return rows, values
    return rows[inside], np.broadcast_to(values, (*rows.shape, *old.shape[1:]))[inside]


def _scatter(change: np.ufunc) -> Callable[[Any, Any, Any], None]:
    """Returns a function that changes rows, in turn if one occurs several times."""

    def scatter(old: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
        rows, values = _existing_rows(old, rows, values)
        if len(np.unique(rows)) == rows.size:
            # NumPy's `at` visits elements one by one; this is many times as fast.
            old[rows] = change(old[rows], values)
        else:
            change.at(old, rows, values)

    return scatter


def _scatter_update(old: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    rows, values = _existing_rows(old, rows, values)
    old[rows] = values


def _scatter_div(old: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Divides rows; integers are rounded towards zero, as TensorFlow does."""
    if not np.issubdtype(old.dtype, np.integer):
        _scatter(np.divide)(old, rows, values)
        return
    rows, values = _existing_rows(old, rows, values)
    divisor = np.ones_like(old)
    np.multiply.at(divisor, rows, values)
    if not divisor.all():
        raise errors.InvalidArgumentError("scatter_div cannot divide integers by zero.")
    quotient = np.abs(old) // np.abs(divisor)
    np.copyto(old, quotient * np.sign(old) * np.sign(divisor))


_OPERATIONS: dict[str, Callable[..., object]] = {
    "assign_add": lambda old, value: np.add(old, value, out=old),
    "assign_sub": lambda old, value: np.subtract(old, value, out=old),
    "scatter_add": _scatter(np.add),
    "scatter_sub": _scatter(np.subtract),
    "scatter_mul": _scatter(np.multiply),
    "scatter_min": _scatter(np.minimum),
    "scatter_max": _scatter(np.maximum),
    "scatter_div": _scatter_div,
    "scatter_update": _scatter_update,
}
