"""All parameter servers together: where variables go, and how they are reached."""

from __future__ import annotations

import collections
import functools
import importlib
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.foundation import ambient, errors
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.servers import (
    carrier as carrier_lib,
    messages,
    random_keys,
    server_files,
    slots,
    update_parts,
)
from unisono._src.servers.carrier import SERVER, Carrier
from unisono._src.servers.messages import OWN, Operation, Request
from unisono._src.state import description, remote_state
from unisono._src.state.storage import Cell
from unisono._src.values import collectives, exported

if TYPE_CHECKING:
    import optax

    from unisono._src.state.variables import Variable

_log = logging.getLogger("unisono")
_HERE = __name__.rpartition(".")[0]


@final
class ServerGroup(server_files.SavingServers):
    """The parameter servers of a strategy.

    Args:
        carrier: reaches them.
        count: how many there are.
        workers: how many workers there are.

    Attributes:
        count: how many servers there are.
        held: by server, what it holds: the name, shape and type of each key.
        is_shut_down: whether the program has ended them itself.
    """

    def __init__(self, carrier: Carrier, count: int, workers: int) -> None:
        super().__init__()
        self._carrier = carrier
        self._workers = workers
        # By key, the implementation of random keys.
        self._impls: dict[str, str] = {}
        # By key, the first value of variables with a value for each worker.
        self._first: dict[str, tuple[int, np.ndarray]] = {}
        self.count = count
        self.is_shut_down = False
        self._bytes = [0] * count
        # Keys begin with a number, because two variables may have the same name.
        self._numbers = itertools.count()
        self.held: list[dict[str, tuple[str, tuple[int, ...], str]]] = [
            {} for _ in range(count)
        ]
        # The servers, key and bytes of variables that are gone and that the servers
        # still keep. A deque, because its `append` is atomic; see `place`.
        self._dropped: collections.deque[tuple[tuple[int, ...], str, int]] = (
            collections.deque()
        )
        # By server, the keys of the programs that it has.
        # Threads may send a program twice, which does no harm.
        self._known: list[set[str]] = [set() for _ in range(count)]
        self._lock = threading.RLock()
        # By optimizer, the parts of its updates by cells and the shapes of gradients;
        # None if servers cannot compute them.
        self._plans: weakref.WeakKeyDictionary[
            object, dict[object, list[update_parts.UpdatePart] | None]
        ] = weakref.WeakKeyDictionary()

    def place(self, cell: Cell) -> remote_state.Home:
        """Returns where a new variable goes: to the server that holds fewest bytes."""
        kept = random_keys.numbers_like(cell)
        size = int(np.prod(kept.shape)) * kept.dtype.itemsize
        with self._lock:
            # TensorFlow goes round, whatever the size (docs/differences.md).
            wanted = self._find_wanted() or (int(np.argmin(self._bytes)),)
            key = f"{next(self._numbers)}:{cell.name}"
            workers = getattr(ambient.current().colocate, "workers", 0)
            if workers:
                wanted, key = (int(np.argmin(self._bytes)),), f"{key}{OWN}"
            for index in wanted:
                self._bytes[index] += size
                self.held[index][key] = cell.name, kept.shape, str(kept.dtype)
        # When nobody has the variable any more, the servers need not either. This may
        # run at any moment in any thread, so it only takes a note.
        weakref.finalize(cell, self._dropped.append, (wanted, key, size))
        return remote_state.Home(self, key, wanted, workers)

    def move(self, cell: Cell, home: remote_state.Home) -> None:
        """Moves a variable to other servers, before any program uses it.

        Args:
            cell: the variable.
            home: has the servers that it goes to.
        """
        old = remote_state.home_of(cell)
        if old.servers == home.servers:
            return
        (value,) = self.read([cell])
        # It leaves the old servers as if it were gone, and is made anew on the others.
        kept = random_keys.numbers_like(cell)
        size = int(np.prod(kept.shape)) * kept.dtype.itemsize
        self._dropped.append((old.servers, old.key, size))
        with ambient.push(colocate=home):
            cell.home = self.place(cell)
        self.create(cell, value)

    def stage(self, closed: ClosedProgram, name: str) -> update_parts.StagedProgram:
        """Returns a program that looks rows up as a function; see `RemoteState`."""
        return update_parts.StagedProgram(closed, name)

    def make_update(
        self,
        variables: Sequence[Variable],
        tx: optax.GradientTransformation,
        groups: Sequence[int],
    ) -> slots.OptimizerUpdate:
        """Returns the slots and updates of variables; see `RemoteState`."""
        return slots.OptimizerUpdate(variables, tx, groups)

    def plan_update(
        self,
        optimizer: object,
        change: remote_state.UpdateFunction,
        cells: Sequence[Cell],
        gradients: Sequence[jax.ShapeDtypeStruct],
        owners: Sequence[int],
        unknown: Sequence[str] = (),
    ) -> Callable[[Sequence[Any]], None] | None:
        """Returns a function of gradients that makes an update; see `RemoteState`."""
        known = self._plans.setdefault(optimizer, {})
        shapes = tuple((g.shape, g.dtype) for g in gradients)
        # By the cells: another model may get the number in memory of one that is gone.
        key = tuple(cells), tuple(owners), shapes, tuple(unknown)
        if key not in known:
            try:
                if unknown:
                    raise update_parts.CannotBeCutError(
                        f"The update is given {sorted(unknown)}, which servers do not "
                        "have."
                    )
                known[key] = slots.cut(change, cells, gradients, owners)
            except update_parts.CannotBeCutError as error:
                known[key] = None
                self._warn_of_lost_updates(type(optimizer).__name__, error)
        parts = known[key]
        if parts is None:
            return None
        return functools.partial(slots.apply_parts, parts, cells)

    def load_fit(self) -> Callable[..., Any]:
        """Returns what trains a Keras model on the workers; see `RemoteState`."""
        # By its name, because it loads Keras, which need not be installed.
        found: Callable[..., Any] = importlib.import_module(f"{_HERE}.keras_fit").fit
        return found

    def _warn_of_lost_updates(self, optimizer: str, error: Exception) -> None:
        """Says that workers compute an optimizer's updates, if there are several.

        Args:
            optimizer: its name.
            error: why servers cannot compute them.
        """
        if self._workers > 1:
            _log.warning(
                "Parameter servers cannot compute the updates of %s: %s Each worker "
                "computes them from the values that it has read, and what other "
                "workers have changed meanwhile may be lost. Train with one worker, or "
                "use another optimizer.",
                optimizer,
                error,
            )

    def place_for_workers(self) -> remote_state.Home:
        """Returns the place of variables with a value for each worker."""
        return remote_state.Home(self, "", (), self._workers)

    def _find_wanted(self) -> tuple[int, ...] | None:
        """Returns the servers that the running code asks for, or None."""
        target = ambient.current().colocate
        if isinstance(target, remote_state.Home):
            return target.servers
        cell = getattr(target, "state_cell", None)
        home = getattr(cell, "home", None)
        return None if home is None else home.servers

    def create(self, cell: Cell, value: ArrayLike | None) -> None:
        """Gives a variable its first value; zeros if it is None."""
        self._forget_dropped()
        home = remote_state.home_of(cell)
        if value is not None and collectives.is_key(cell):
            # Servers keep numbers; which keys they are is known here only.
            self._impls[home.key] = str(jax.random.key_impl(value))
            value = random_keys.to_numbers(value)
        if home.workers:
            self._first[home.key] = home.servers[0], np.asarray(value)
            for worker in range(home.workers):
                self.reset(worker, home.key)
            return
        zeros = tuple(cell.shape), str(cell.dtype)
        array = zeros if value is None else np.asarray(value)
        for index in home.servers:
            self.call(index, f"creating '{cell.name}'", "create", home.key, array)

    def reset(self, worker: int, key: str | None = None) -> None:
        """Gives a worker's own values of variables their first value again.

        Args:
            worker: the worker.
            key: the variable; None for all that have a value for each worker.
        """
        for name in list(self._first) if key is None else [key]:
            server, value = self._first[name]
            self.call(server, f"creating '{name}'", "create", f"{name}{worker}", value)

    def _forget_dropped(self) -> None:
        """Tells servers which variables are gone."""
        gone: dict[int, list[str]] = {}
        while self._dropped:
            wanted, key, size = self._dropped.popleft()
            own = range(self._workers) if self._first.pop(key, None) else ()
            for index in wanted:
                gone.setdefault(index, []).extend([key, *(f"{key}{i}" for i in own)])
                # A variable that was moved is noted when it moves, and when it is gone.
                if self.held[index].pop(key, None) is not None:
                    self._bytes[index] -= size
        for index, keys in gone.items():
            self.call(index, "dropping variables", "drop", keys)

    def read(
        self, cells: Sequence[Cell], draws: remote_state.Draws = remote_state.NO_DRAWS
    ) -> list[jax.Array]:
        """Returns the values of variables; see `RemoteState`."""
        by_server: dict[int, list[int]] = {}
        for i, cell in enumerate(cells):
            home = remote_state.home_of(cell)
            if home.workers:
                raise ValueError(
                    f"The variable '{cell.name}' has a value for each worker: use it "
                    "in scheduled functions, and read_all() on the coordinator."
                )
            # What several servers have, they all change in the same way; the first
            # tells it.
            by_server.setdefault(home.servers[0], []).append(i)
        found: dict[int, Any] = {}
        for server, places in by_server.items():
            asked = [
                Request(
                    remote_state.home_of(cells[i]).key,
                    None,
                    tuple(self.add_program(server, c) for c in draws.get(cells[i], ())),
                )
                for i in places
            ]
            what = f"reading '{cells[places[0]].name}'"
            values = self.call(server, what, "pull", asked)
            found.update(zip(places, values, strict=True))
        # While a function is traced, `jnp.asarray` would give a tracer; the values are
        # known now.
        with jax.ensure_compile_time_eval():
            return [
                random_keys.from_numbers(jnp.asarray(found[i]), self.impl_of(cell))
                for i, cell in enumerate(cells)
            ]

    def impl_of(self, cell: Cell) -> str | None:
        """Returns the implementation of a cell's random keys; None for numbers."""
        return self._impls.get(remote_state.home_of(cell).key)

    def read_rows(self, cell: Cell, rows: ArrayLike) -> jax.Array:
        """Returns some rows of a variable."""
        wanted = messages.UniqueRows(np.asarray(rows))
        home = remote_state.home_of(cell)
        asked = [Request(home.key, wanted.rows)]
        what = f"reading rows of '{cell.name}'"
        found = self.call(home.servers[0], what, "pull", asked)[0]
        with jax.ensure_compile_time_eval():
            return jnp.asarray(wanted.expand(found))

    def apply(self, changes: Sequence[remote_state.Change]) -> None:
        """Lets servers change variables, and returns when they have done so."""
        by_server: dict[int, list[Operation]] = {}
        for change in changes:
            operands = tuple(
                np.asarray(random_keys.to_numbers(x)) for x in change.operands
            )
            for index in change.servers:
                program = self.add_program(index, change)
                made = messages.pack(describe_change(change, operands, program))
                by_server.setdefault(index, []).append(made)
        # One message for each server, with its changes in order.
        for index, operations in by_server.items():
            what = f"changing '{changes[0].cells[0].name}'"
            self.call(index, what, "push", operations)

    def add_program(self, index: int, change: remote_state.Change) -> str:
        """Gives a server the program of a change, if it has one; returns its key."""
        if change.program is None:
            return ""
        data = export_change(change)
        key = exported.digest(data)
        self.send_program(index, key, data)
        return key

    def send_program(self, index: int, key: str, data: bytes) -> None:
        """Gives a server the program of an update, unless it has it."""
        if key not in self._known[index]:
            self.call(index, "taking a program", "add_program", key, data)
            self._known[index].add(key)

    @property
    def addresses(self) -> list[str]:
        """Where each server runs, for messages."""
        return [self._carrier.address(SERVER, i) for i in range(self.count)]

    def call_each(
        self, what: str, method: str, given: Mapping[int, tuple[Any, ...]]
    ) -> dict[int, Any]:
        """Calls a method of several servers at once; see `SavingServers`."""
        made = {i: self._carrier.server(i).call(method, *x) for i, x in given.items()}
        found: dict[int, Any] = {}
        failed: list[Exception] = []
        # All are waited for: no server works any more when an error is raised.
        for index, call in made.items():
            try:
                found[index] = carrier_lib.wait(call, SERVER, index, what)
            except Exception as error:
                failed.append(error)
        if not failed:
            return found
        if isinstance(failed[0], errors.UnavailableError):
            raise self.explain(failed[0]) from failed[0]
        raise failed[0]

    def call(self, index: int, what: str, method: str, *args: object) -> Any:
        """Calls a method of a server, and returns its result.

        Args:
            index: which server.
            what: what it is asked to do, for messages.
            method: the name of the method.
            *args: its arguments.

        Raises:
            UnavailableError: the server is gone; it says which, and what it held.
        """
        return self.call_each(what, method, {index: args})[index]

    def describe(self) -> description.Description:
        """Returns the contents of each server, slots of optimizers included."""
        self._forget_dropped()
        by_key: dict[str, tuple[int, ...]] = {}
        for index, held in enumerate(self.held):
            for key in held:
                by_key[key] = (*by_key.get(key, ()), index)
        rows = []
        for key, indices in by_key.items():
            name, shape, dtype = self.held[indices[0]][key]
            shape = (self._workers, *shape) if key.endswith(OWN) else shape
            rows.append(
                description.Row.on_servers(name, shape, jnp.dtype(dtype), indices)
            )
        return description.Description(tuple(rows))

    def replace(self, index: int) -> None:
        """Starts a server again, with zeros for all that the lost one held."""
        self._carrier.replace(SERVER, index)
        # The new server is empty. Zeros take the places of the variables, so that a
        # restore finds them.
        self._known[index].clear()
        for key, (name, *zeros) in list(self.held[index].items()):
            self.call(index, f"creating '{name}'", "create", key, tuple(zeros))

    def explain(self, error: errors.UnavailableError) -> errors.UnavailableError:
        """Returns the error of a lost server, with its address and its variables."""
        if error.task_type != SERVER:
            return error
        index = error.task_index
        if self.is_shut_down:
            return errors.UnavailableError(
                "The strategy was shut down: its parameter servers have ended, and "
                "their variables are gone. Read and save variables before shutdown(), "
                "or make a new strategy and restore a checkpoint.",
                SERVER,
                index,
            )
        names = sorted(name for name, *_ in self.held[index].values())
        told = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return errors.UnavailableError(
            f"The parameter server {index} ({self._carrier.address(SERVER, index)}) is "
            f"gone. It held {len(names)} variable(s): {told}. Start the program again "
            "and restore the last checkpoint.",
            SERVER,
            index,
        )


# Programs of changes are made once for each trace; their bytes are kept with it. An
# entry holds its program, so the program's id cannot be given to another one.
_exported: dict[int, tuple[Any, bytes]] = {}


def describe_change(
    change: remote_state.Change, operands: tuple[np.ndarray, ...], program: str
) -> Operation:
    """Returns a change as the message to a server.

    Args:
        change: the change.
        operands: the arrays of its operands.
        program: the key under which the server knows its program; empty for none.
    """
    return Operation(
        change.kind,
        remote_state.keys_of(change.cells),
        operands,
        program,
        remote_state.keys_of(change.reads),
        change.sparse,
        change.rows,
    )


def export_change(change: remote_state.Change) -> bytes:
    """Returns the program of a change as bytes."""
    known = _exported.get(id(change.program))
    if known is not None and known[0] is change.program:
        return known[1]
    closed = change.program
    assert closed is not None
    data = exported.export(
        lambda *xs: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *xs),
        [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals],
        "update",
    )
    # A bound, because a program that traces for ever would fill the memory.
    if len(_exported) > 256:
        _exported.pop(next(iter(_exported)))
    _exported[id(change.program)] = (change.program, data)
    return data
