"""Branches and loop bodies as parts of a program, with the variables they assign."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient, nest
from unisono._src.ops.host import eager_values
from unisono._src.state import branch_frame, frames
from unisono._src.state.storage import Cell
from unisono._src.values import jax_tapes, jax_traces


class LoopCarried(abc.ABC):
    """A base class for objects of arrays that loops and branches give on.

    JAX knows the arrays of its subclasses.
    """

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, cls._tree_flatten, cls._tree_unflatten)

    @abc.abstractmethod
    def _tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns the arrays, and what else the object has."""

    @classmethod
    @abc.abstractmethod
    def _tree_unflatten(cls, told: Any, children: Any) -> Self:
        """Returns the object for what `_tree_flatten` has returned."""

    @abc.abstractmethod
    def settle(self) -> Self:
        """Returns the object in the form that differs least from round to round."""

    @abc.abstractmethod
    def fill_like(self, other: Any) -> Self:
        """Returns the object, which has no arrays, with zeros like those of another."""


@final
@dataclasses.dataclass
class Body:
    """The program of a branch or loop body.

    Attributes:
        jaxpr: the program. Its inputs are `consts`, the arguments, and the values of
            the cells that were given; its outputs are the result and the new values of
            `written`.
        consts: the values that the body takes from the code around it.
        shape: the result, with a place for each array.
        count: how many arrays the result has.
        written: the cells that the body assigns.
    """

    jaxpr: Any
    consts: list[Any]
    shape: Any
    count: int
    written: list[Cell]

    def call(self, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """Returns the outputs for some inputs."""
        return jax.core.eval_jaxpr(self.jaxpr, consts, *args)

    def avals(self) -> list[Any]:
        """Returns shapes and types of the arrays of the result."""
        return [v.aval for v in self.jaxpr.outvars[: self.count]]

    def rebuild(self, arrays: Sequence[Any]) -> Any:
        """Returns the result with other arrays."""
        return unflatten(self.shape, arrays)


def is_traced() -> bool:
    """Returns whether the running code becomes a program, or a part of one."""
    if frames.frame().is_compiled:
        return True
    return not jax_traces.is_eager(jax_traces.reading_trace())


def is_outside_gradients() -> bool:
    """Returns whether no transformation of JAX for gradients is around the code."""
    return jax_traces.current() is jax_traces.base_trace()


def find_known_value(x: Any) -> Any:
    """Returns the value of an array that is known now; None if it is not."""
    # Eagerly, a tape's value has its number below.
    found = jax_tapes.lower(x) if isinstance(x, jax.core.Tracer) else x
    if not isinstance(found, jax.core.Tracer):
        return found
    return jax_traces.concrete_value(found)


def flatten(structure: Any) -> tuple[list[Any], Any]:
    """Returns the arrays of a structure, and the structure with a mark for each leaf.

    Each array has a type of its own, not a weak one.
    """
    found: list[Any] = []

    def mark(x: Any) -> Any:
        if x is None:
            return None
        if not isinstance(x, LoopCarried):
            found.append(strong_array(x))
            return 0
        inner, layout = jax.tree.flatten(x.settle())
        found.extend(map(strong_array, inner))
        return layout

    marks = nest.map_structure(mark, structure)
    return found, marks


def arrays(structure: Any) -> list[Any]:
    """Returns the arrays of a structure, as `flatten` does."""
    return flatten(structure)[0]


def unflatten(marks: Any, arrays: Sequence[Any]) -> Any:
    """Returns the structure that `flatten` has marked, with other arrays."""
    given = iter(arrays)

    def fill(mark: Any) -> Any:
        if isinstance(mark, jax.tree_util.PyTreeDef):
            return mark.unflatten([next(given) for _ in range(mark.num_leaves)])
        return None if mark is None else next(given)

    return nest.map_structure(fill, marks)


def strong_array(x: Any) -> jax.Array:
    """Returns a value as an array whose type does not follow other operands."""
    array: jax.Array = eager_values.tensor(x)
    if not isinstance(array, jax.Array):
        return array  # Of the host, whose arrays keep their types.
    # A Python number would make a weak type, which the first addition in the body may
    # change; JAX's loops refuse a value whose type changes.
    found: jax.Array = jax.lax.convert_element_type(array, array.dtype)
    return found


@contextlib.contextmanager
def _enter(
    outer: frames.StateFrame, given: dict[Cell, Any]
) -> Iterator[branch_frame.BranchFrame | None]:
    """Runs a block as the body of a branch or loop."""
    if not outer.is_compiled:
        # In a `jax.jit` of the user's, where variables cannot be written anyway.
        yield None
        return
    inner = branch_frame.BranchFrame(outer, given)
    with ambient.push(state=inner):
        yield inner


def trace(
    fn: Callable[..., Any], args: Sequence[Any], cells: Sequence[Cell] = ()
) -> Body:
    """Returns the program of a body.

    Args:
        fn: the body; it gets one argument for each of `args`.
        args: arrays, of which the body sees the shapes and types.
        cells: the cells whose values are inputs, too.
    """
    # The body sees abstract values only. What it uses besides its arguments, such as
    # arrays of the code around it, comes out of the trace as `consts`.
    outer = frames.frame()
    stored = [outer.whole(c) for c in cells]
    seen: dict[str, Any] = {}

    def body(args: list[Any], stored: list[Any]) -> Any:
        given = dict(zip(cells, stored, strict=True))
        with _enter(outer, given) as frame:
            flat, marks = flatten(fn(*args))
        written = [] if frame is None else list(frame.written)
        # What is no array cannot leave the trace in another way.
        seen.update(shape=marks, count=len(flat), written=written)
        # The trace that `make_jaxpr` has opened for this body; see `_check_tapes`.
        seen["trace"] = jax_traces.base_trace()
        return flat, [] if frame is None else [frame.values[c] for c in written]

    closed = jax.make_jaxpr(body)(list(args), stored)
    _check_tapes(closed.consts, seen["written"], seen.pop("trace"))
    return Body(closed.jaxpr, list(closed.consts), **seen)


def preview(fn: Callable[..., Any], args: Sequence[Any]) -> Body:
    """Returns the program of a body that will be traced once more."""
    program = frames.outermost()
    before = program.seeded
    body = trace(fn, args)
    # The next trace has the same random operations, with the same states.
    program.seeded = before
    return body


def _check_tapes(consts: Sequence[Any], written: Sequence[Cell], inner: Any) -> None:
    """Raises if a tape around a body follows a value that is made in the body.

    Args:
        consts: what the body takes from the code around it.
        written: the cells that it assigns.
        inner: the trace of the body.
    """
    # A constant of the body comes from outside. If it belongs to the trace of the body
    # nevertheless, a tape outside has kept a value from inside, which would leak.
    for value in consts:
        while isinstance(value, jax_tapes.TapeTracer):
            value = value.primal
        is_tracer = isinstance(value, jax.core.Tracer)
        if is_tracer and jax_traces.trace_of(value) is inner:
            names = ", ".join(f"'{c.name}' (created at {c.origin})" for c in written)
            raise RuntimeError(
                f"A branch or loop body assigns the variable {names} and reads it "
                "again, while a gradient tape around the body follows it. Open the "
                "tape inside the body, or assign the variable after the loop."
            )


def store(cells: Sequence[Cell], values: Sequence[Any]) -> None:
    """Stores the values that cells have after a branch or loop."""
    frame = frames.frame()
    for cell, value in zip(cells, values, strict=True):
        # As for any assignment: a variable keeps numbers, not their gradients.
        frame.set_whole(cell, frames.strip_gradient(value))


def switch(index: Any, found: Sequence[Body]) -> Any:
    """Returns the result of the branch that an index chooses when the program runs.

    Args:
        index: the number of the branch.
        found: the branches, whose results are alike.
    """
    cells = list(dict.fromkeys(c for body in found for c in body.written))
    frame = frames.frame()
    # The variables that any branch assigns; the others stay out of the program.
    before = [frame.whole(c) for c in cells]

    def make(body: Body) -> Callable[..., Any]:
        def branch(consts: Any, before: list[Any]) -> list[Any]:
            out = body.call(consts[found.index(body)], ())
            # All branches must return the same: those that do not write a cell return
            # its old value.
            new = dict(zip(body.written, out[body.count :], strict=True))
            kept = zip(cells, before, strict=True)
            return [*out[: body.count], *(new.get(c, old) for c, old in kept)]

        return branch

    # All that the branches need is an operand: gradients follow operands.
    out = jax.lax.switch(
        jnp.asarray(index, jnp.int32),
        [make(body) for body in found],
        [body.consts for body in found],
        before,
    )
    first = found[0]
    store(cells, out[first.count :])
    return first.rebuild(out[: first.count])


def run_loop(
    cond: Callable[..., Any],
    step: Callable[..., Any],
    carry: Sequence[Any],
) -> list[Any]:
    """Returns the values of a loop after its last round.

    Args:
        cond: returns whether to go on, for the values.
        step: returns the next values as a list, for the values.
        carry: the first values, strong arrays.
    """
    body, cells = _trace_loop(step, carry, carry)
    check = trace(cond, carry, cells)
    count = len(carry)

    # What both need from outside is carried unchanged: gradients follow operands.
    def goes_on(state: Any) -> Any:
        consts, values = state
        return check.call(consts[0], values)[0]

    def advance(state: Any) -> Any:
        consts, values = state
        return consts, body.call(consts[1], values)

    before = [frames.frame().whole(c) for c in cells]
    start = [check.consts, body.consts], [*carry, *before]
    _, out = jax.lax.while_loop(goes_on, advance, start)
    store(cells, out[count:])
    found: list[Any] = out[:count]
    return found


def run_scan(
    step: Callable[..., Any],
    carry: Sequence[Any],
    rows: Sequence[Any],
    length: int,
    is_reversed: bool = False,
) -> tuple[list[Any], list[Any], Body]:
    """Returns the last values of a loop over rows, and the result of each row.

    Args:
        step: gets the values and a row, and returns the next values and the row's
            result, as two lists.
        carry: the first values, strong arrays.
        rows: arrays with a row for each step along their first axis.
        length: how many rows there are.
        is_reversed: whether the last row comes first.
    """
    # A row by its shape and type: there may be no rows at all.
    first = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows]
    body, cells = _trace_loop(step, carry, [*carry, *first])
    count = len(carry)

    def advance(values: Any, row: Any) -> Any:
        mine, stored = values[:count], values[count:]
        out = body.call(body.consts, [*mine, *row, *stored])
        return [*out[:count], *out[body.count :]], out[count : body.count]

    before = [frames.frame().whole(c) for c in cells]
    out, given = jax.lax.scan(
        advance, [*carry, *before], list(rows), length, reverse=is_reversed
    )
    store(cells, out[count:])
    return out[:count], given, body


def _trace_loop(
    step: Callable[..., Any], carry: Sequence[Any], args: Sequence[Any]
) -> tuple[Body, list[Cell]]:
    """Returns the program of a loop's body, whose variables are values of the loop."""
    # Only a trace tells which cells the body writes. These become inputs of the next
    # trace, in which the body may write others.
    program = frames.outermost()
    before = program.seeded
    body, cells = trace(step, args), list[Cell]()
    while set(body.written) - set(cells):
        cells = list(dict.fromkeys([*cells, *body.written]))
        # As in `preview`.
        program.seeded = before
        body = trace(step, args, cells)
    # Behind the values of the loop come the results of a row, if there are any.
    for i, (given, made) in enumerate(zip(carry, body.avals(), strict=False)):
        if given.shape != made.shape or given.dtype != made.dtype:
            raise ValueError(
                f"Value {i} of the loop enters its body with shape {given.shape} and "
                f"type {given.dtype}, and leaves it with shape {made.shape} and type "
                f"{made.dtype}. In a compiled function it must keep both."
            )
    if cells:
        # In the order of `cells`, also those that are only read.
        order = {c: i for i, c in enumerate(body.written)}
        outvars = body.jaxpr.outvars
        picked = [outvars[body.count + order[c]] for c in cells]
        body.jaxpr = body.jaxpr.replace(outvars=[*outvars[: body.count], *picked])
        body.written = cells
    return body, cells
