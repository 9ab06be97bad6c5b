"""Closures: scheduled functions as programs that any worker can run.

A worker runs a compiled program in another process, which cannot call Python. So the
program gives the values of each `print` and check as further results. The worker looks
whether a check has failed, and makes no change then. The coordinator, which has the
Python functions, prints the values and raises the error.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast, final

import jax
import numpy as np
from jax.typing import ArrayLike

from unisono._src.execution import equations, program_checks, programs, signature
from unisono._src.execution.traced_function import TracedCall, TracedFunction
from unisono._src.servers import (
    closure_queue,
    random_keys,
    server_files,
    server_group,
    update_parts,
)
from unisono._src.servers.messages import (
    ArrayShapes,
    ClosureProgram,
    Effect,
    ExportedStage,
    Lookup,
)
from unisono._src.servers.per_worker import ScheduledValue
from unisono._src.state import frames, remote_state
from unisono._src.state.storage import Cell
from unisono._src.values import collectives, exported

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn, Literal, Var


# The programs that servers run: the server, the key and the bytes of each.
_Updates = tuple[tuple[int, str, bytes], ...]
# `add_any` is the sum that JAX makes of gradients.
_SUMS = ("add", "add_any")
# A change that changes nothing.
_NOTHING = ""
# Primitives whose result is their operand.
_SAME = ("stop_gradient", "copy", "copy_p")


@final
@dataclasses.dataclass(frozen=True, eq=False)
class ExportedFunction:
    """A traced function in the form that is sent to workers.

    Attributes:
        program: what a worker runs.
        local: the cells of the coordinator that the program reads. Their values are
            the first arguments.
        outputs: the structure of the result.
        updates: the bytes of the programs that servers run for it, by key, with the
            server that needs each.
        told: what it prints and checks. The last arrays of the result are for them.
    """

    program: ClosureProgram
    local: tuple[Cell, ...]
    outputs: Any
    updates: _Updates
    told: tuple[Told, ...]


def export_function(
    found: TracedFunction, shapes: Sequence[ArrayShapes]
) -> ExportedFunction:
    """Returns a traced function in the form that is sent to workers.

    Args:
        found: the trace.
        shapes: the shapes and types of the arrays of each element that it takes from a
            dataset.

    Raises:
        ValueError: the program cannot run in another process; the message says why.
    """
    found, told = _take_out(found)
    _check_runs_elsewhere(found)
    found = _find_additions(found)
    # A worker reads the variables of servers itself. Those of the coordinator come with
    # the arguments. So the program takes first the former, then the latter.
    remote = [c for c in found.read if c.home is not None]
    local = [c for c in found.read if c.home is None]
    order = {c: i for i, c in enumerate([*remote, *local])}
    places = [order[c] for c in found.read]
    count, consts = len(places), found.constants.fill_in(())
    # The first outputs are values of cells of this process, which do not travel.
    start = len(found.written) + len(found.created)

    def run(*inputs: jax.Array) -> list[ArrayLike]:
        # Random keys travel as numbers.
        cells = [
            random_keys.from_numbers(inputs[i], _key_implementation(c))
            for i, c in zip(places, found.read, strict=True)
        ]
        out = jax.core.eval_jaxpr(found.jaxpr, consts, *cells, *inputs[count:])
        return [random_keys.to_numbers(x) for x in out[start:]]

    # The inputs in the new order, to trace the program with.
    avals = [equations.aval_of(v) for v in found.jaxpr.invars]
    given = [avals[places.index(i)] for i in range(count)] + avals[count:]
    # Traced anew, in the order and with the types that travel.
    closed = jax.make_jaxpr(run)(*map(_struct, given))
    stages = tuple(
        _export(stage, found.name) for stage in update_parts.split(closed, found.name)
    )
    # A draw changes a random state in the moment in which it is read, so that no two
    # workers draw the same numbers. All other changes come after the program.
    draws, later = remote_state.split_draws(found.changes, found.read)
    effects, updates, operands = _list_effects(later)
    reads, more = _list_reads(remote, draws)
    known = found.name, reads, tuple(shapes)
    # By content: the same function, traced again, is not sent to a worker again.
    checks = _list_checks(told)
    key = exported.digest(stages, effects, checks, *known)
    program = ClosureProgram(key, *known, stages, effects, operands, checks)
    changes = (*updates, *more)
    return ExportedFunction(program, tuple(local), found.outputs, changes, told)


def _export(stage: update_parts.Stage, name: str) -> ExportedStage:
    """Returns a stage with its program as bytes."""
    program = stage.program
    data = exported.export(
        lambda *xs: jax.core.eval_jaxpr(program.jaxpr, program.consts, *xs),
        [_struct(a) for a in program.in_avals],
        name,
    )
    homes = [remote_state.home_of(c) for c in stage.cells]
    return ExportedStage(data, tuple(Lookup(h.servers[0], h.key) for h in homes))


def _struct(aval: jax.core.ShapedArray) -> jax.ShapeDtypeStruct:
    return random_keys.numbers_like(aval)


def _key_implementation(cell: Cell) -> str | None:
    """Returns the implementation of a cell's random keys; None for numbers."""
    if not collectives.is_key(cell):
        return None
    if cell.home is None:
        return str(jax.random.key_impl(frames.EAGER.whole(cell)))
    group = cell.home.group
    assert isinstance(group, server_files.SavingServers)
    return group.impl_of(cell)


def _check_runs_elsewhere(found: TracedFunction) -> None:
    """Raises `ValueError` if a trace cannot run in another process."""
    callback = programs.find_callback(found.jaxpr)
    if callback is not None:
        raise ValueError(
            f"The function '{found.name}' calls Python while it runs ({callback}). A "
            "scheduled function runs in another process, as a compiled program. Take "
            "prints and assertions out of its loops and branches, and "
            "jax.pure_callback and jax.experimental.io_callback out of it; return what "
            "you want to see."
        )
    for cell in found.written:
        raise ValueError(
            f"The function '{found.name}' assigns the variable '{cell.name}' (created "
            f"at {cell.origin}), which was made outside strategy.scope() and lives on "
            "the coordinator. Create it in the scope, so that a parameter server keeps "
            "it."
        )


def _list_reads(
    cells: Sequence[Cell], draws: remote_state.Draws
) -> tuple[tuple[tuple[int, str, tuple[str, ...]], ...], _Updates]:
    """Returns what a program reads from servers, and the programs of its draws."""
    reads, updates = [], list[tuple[int, str, bytes]]()
    for cell in cells:
        home, names = remote_state.home_of(cell), list[str]()
        server = home.servers[0]
        for change in draws.get(cell, ()):
            data = server_group.export_change(change)
            names.append(exported.digest(data))
            updates.append((server, names[-1], data))
        reads.append((server, home.key, tuple(names)))
    return tuple(reads), tuple(updates)


def _list_effects(
    changes: Sequence[remote_state.Change],
) -> tuple[tuple[Effect, ...], _Updates, int]:
    """Returns the effects of changes, the servers' programs, and the operands' count.

    Changes that are made while a variable is read have no operands and are left out.
    """
    effects, updates, position = list[Effect](), list[tuple[int, str, bytes]](), 0
    for change in changes:
        # An operation names its operands by their places among all that the program
        # gives.
        operands = tuple(range(position, position + len(change.operands)))
        position += len(operands)
        name = ""
        if change.program is not None:
            data = server_group.export_change(change)
            name = exported.digest(data)
            updates += [(s, name, data) for s in change.servers]
        operation = server_group.describe_change(change, (), name)
        effects += [Effect(s, operation, operands) for s in change.servers]
    return tuple(effects), tuple(updates), position


def _find_additions(found: TracedFunction) -> TracedFunction:
    """Returns a trace in which servers add where the program assigns a sum.

    A sum such as ``v.assign(v + x)`` is computed from a value that other workers may
    have changed since it was read. If the server adds instead, nothing is lost. Metrics
    of Keras and Flax are written this way. A value that is assigned as it was read is
    not sent at all: transformations of Flax do so with all variables of a model.

    Args:
        found: the trace, whose variables are on servers.
    """
    jaxpr = found.jaxpr
    made_by = {v: e for e in jaxpr.eqns for v in e.outvars}
    # The value of each cell as the program has it; unknown after other changes.
    current: dict[Cell, Var | Literal | None] = dict(
        zip(found.read, jaxpr.invars, strict=False)
    )
    place = len(found.written) + len(found.created)
    outvars, changes = list(jaxpr.outvars[:place]), []
    for change in found.changes:
        end = place + len(change.operands)
        operands, new = jaxpr.outvars[place:end], None
        if change.kind == "assign":
            (new,), (cell,) = operands, change.cells
            kind, term = _find_term(new, current.get(cell), made_by)
            change = dataclasses.replace(change, kind=kind)
            # The program gives the term; the compiler drops a sum that nobody uses.
            operands = [term]
        for cell in change.cells:
            current[cell] = new
        if change.kind != _NOTHING:
            outvars += operands
            changes.append(change)
        place = end
    outvars += jaxpr.outvars[place:]
    return dataclasses.replace(
        found, jaxpr=jaxpr.replace(outvars=outvars), changes=changes
    )


def _find_term(
    new: Var | Literal, old: Var | Literal | None, made_by: dict[Var, JaxprEqn]
) -> tuple[str, Var | Literal]:
    """Returns the kind of a change that gives a cell a new value, and its operand."""
    old = None if old is None else _origin(old, made_by)
    source = _origin(new, made_by)
    if old is not None and source is old:
        return _NOTHING, new
    equation = None if source is None else made_by.get(source)
    if old is None or equation is None:
        return "assign", new
    name = equation.primitive.name
    is_old = [_origin(v, made_by) is old for v in equation.invars]
    if name in _SUMS and any(is_old):
        return "assign_add", equation.invars[1 if is_old[0] else 0]
    # Only `old - x`: `x - old` is no change by a term.
    if name == "sub" and is_old[0]:
        return "assign_sub", equation.invars[1]
    return "assign", new


def _origin(value: Var | Literal, made_by: dict[Var, JaxprEqn]) -> Var | None:
    """Returns the variable of the program that first had a value; None for a number."""
    while not equations.is_literal(value):
        equation = made_by.get(value)
        if equation is None or equation.primitive.name not in _SAME:
            return value
        value = equation.invars[0]
    return None


class _Traceable(Protocol):
    """A function whose calls can be traced without running them."""

    def _trace_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TracedCall: ...


def trace_call(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> TracedCall:
    """Returns the trace of a call, without running it.

    The elements that the trace takes from iterators are put back.

    Args:
        fn: a `Function`, a method, or a concrete function.
        args: the arguments of the call.
        kwargs: its keyword arguments.

    Raises:
        EndOfSequenceError: an iterator has no element to trace the call with.
        ValueError: the function runs on the host, so it has no program.
    """
    # Private, because programs see the classes.
    return cast(_Traceable, fn)._trace_call(args, kwargs)  # noqa: SLF001


class NumberedInput(Protocol):
    """Something of each worker that closures take elements from.

    Attributes:
        number: by which workers know it.
    """

    number: int


@final
@dataclasses.dataclass(eq=False)
class Closure:
    """One scheduled call of a function.

    Attributes:
        function: its program.
        arguments: the arrays of its arguments.
        sources: the iterators that its elements come from. It keeps them: workers let
            their own go when nobody has these.
        number: tells closures apart if its changes must be made only once; else None.
        retrace: returns the function for elements of other shapes.
        remote: finds what receives the result. If the caller has let go of it by then,
            the result is dropped.
    """

    function: ExportedFunction
    arguments: Sequence[np.ndarray]
    sources: Sequence[NumberedInput]
    number: int | None
    retrace: Callable[[tuple[ArrayShapes, ...]], ExportedFunction]
    remote: weakref.ref[ScheduledValue[Any]]

    @property
    def feeds(self) -> list[int]:
        """The workers' resources that its elements come from, in order."""
        return [source.number for source in self.sources]

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.program.name

    def succeed(self, arrays: Sequence[np.ndarray]) -> None:
        """Prints what the call has printed, and gives the caller the result."""
        if self.function.told:
            _tell(self.function.told, arrays)
        remote = self.remote()
        if remote is not None:
            remote.succeed(signature.rebuild(self.function.outputs, iter(arrays)))

    def fail(self, error: BaseException) -> None:
        """Sets the error that `fetch` raises."""
        remote = self.remote()
        if remote is not None:
            remote.fail(error)

    def cancel(self) -> None:
        """Sets the error of a closure that does not run."""
        self.fail(closure_queue.cancelled_error())


def local_values(function: ExportedFunction) -> list[np.ndarray]:
    """Returns the values of the coordinator's own variables that a program reads."""
    found = (frames.EAGER.whole(c) for c in function.local)
    return [np.asarray(random_keys.to_numbers(x)) for x in found]


_CALL = "debug_callback"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Told:
    """One `print` or check of a program.

    Attributes:
        call: the Python function that prints, or notes the failure.
        count: how many values it takes.
        branch: for a check, the branch in which it has failed; a value more, before
            the others, tells the branch that was taken.
    """

    call: Callable[..., object]
    count: int
    branch: int | None = None

    @property
    def outputs(self) -> int:
        """How many values the program gives for it."""
        return self.count + (self.branch is not None)


def _take_out(found: TracedFunction) -> tuple[TracedFunction, tuple[Told, ...]]:
    """Returns a trace that gives values in place of its prints and checks.

    Those in loops and branches stay.

    Args:
        found: the trace.

    Returns:
        The trace, whose last results are the values; and what to do with them.
    """
    jaxpr, told, kept = found.jaxpr, list[Told](), list["JaxprEqn"]()
    values: list[Var | Literal] = []
    for eqn in jaxpr.eqns:
        part = _read_print(eqn) or _read_check(eqn)
        if part is None:
            kept.append(eqn)
        else:
            told.append(part[0])
            values += part[1]
    if not told:
        return found, ()
    outvars = [*jaxpr.outvars, *values]
    changed = jaxpr.replace(eqns=kept, outvars=outvars)
    return dataclasses.replace(found, jaxpr=changed), tuple(told)


def _read_print(eqn: JaxprEqn) -> tuple[Told, list[Var | Literal]] | None:
    """Returns a call of Python and its operands, or None for another operation."""
    if eqn.primitive.name != _CALL:
        return None
    return Told(eqn.params["callback"], len(eqn.invars)), list(eqn.invars)


def _read_check(eqn: JaxprEqn) -> tuple[Told, list[Var | Literal]] | None:
    """Returns a check, which calls Python in one of its branches and does no more."""
    if eqn.primitive.name != "cond" or eqn.outvars:
        return None
    branches = [branch.jaxpr for branch in eqn.params["branches"]]
    busy = [i for i, branch in enumerate(branches) if branch.eqns]
    if len(busy) != 1 or len(branches[busy[0]].eqns) != 1:
        return None
    branch = branches[busy[0]]
    inner = _read_print(branch.eqns[0])
    if inner is None:
        return None
    outer = dict(zip(branch.invars, eqn.invars[1:], strict=True))
    operands = [v if equations.is_literal(v) else outer.get(v) for v in inner[1]]
    if any(v is None for v in operands):
        return None
    told = dataclasses.replace(inner[0], branch=busy[0])
    return told, [eqn.invars[0], *(v for v in operands if v is not None)]


def _list_checks(told: Sequence[Told]) -> tuple[tuple[int, int], ...]:
    """Returns the place of each check's branch, from the end, and where it fails."""
    place = -sum(one.outputs for one in told)
    found = []
    for one in told:
        if one.branch is not None:
            found.append((place, one.branch))
        place += one.outputs
    return tuple(found)


def _tell(told: Sequence[Told], arrays: Sequence[np.ndarray]) -> None:
    """Prints what a program has printed; raises the error of a check that failed.

    Args:
        told: the prints and checks, in the order of the program.
        arrays: the results of the program; the last ones are the values.
    """
    place = len(arrays) - sum(one.outputs for one in told)
    for one in told:
        values = arrays[place : place + one.outputs]
        place += one.outputs
        if one.branch is None:
            one.call(*values)
        elif int(values[0]) == one.branch:
            with program_checks.raising():
                one.call(*values[1:])


def raise_failure(told: Sequence[Told], arrays: Sequence[np.ndarray]) -> NoReturn:
    """Prints what came before the check that failed, and raises its error."""
    _tell(told, arrays)
    raise AssertionError("A check of a scheduled function has failed without an error.")
