"""Decides whether an update may be computed for the rows that have a gradient only.

An update of a table whose gradient has few rows is the same for these rows alone, if it
goes row by row and leaves a row without a gradient as it is: plain gradient descent and
Adagrad do so, and momentum or weight decay do not. The update is traced for the whole
table and for some rows, and the two programs are compared. For every value it is
followed what a row without a gradient has there: zero, or what a cell had before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

import jax

from unisono._src.execution import equations
from unisono._src.execution.sharded_update import ELEMENTWISE

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn, Literal, Var

    from unisono._src.foundation.jax_internals import ClosedProgram
    from unisono._src.state.remote_state import UpdateFunction

# What a row without a gradient has: zeros, or something that is not followed. A number
# stands for what the cell at that place had before.
_ZERO, _ANY = "zero", "any"
_Row = int | str
# Functions of one value that are zero at zero.
_KEEP_ZERO = {
    "abs", "cbrt", "ceil", "erf", "expm1", "floor", "integer_pow", "log1p", "neg",
    "round", "sign", "sin", "sqrt", "square", "tanh",
}  # fmt: skip
# Functions of one value that leave it as it is.
_KEEP = {"copy", "copy_p", "reduce_precision", "stop_gradient"}


class _NotByRows(Exception):
    """The update of some rows is not known to be that of the whole."""


@final
class _Mark(NamedTuple):
    """The facts known about a value of an update.

    Attributes:
        has_rows: whether its first axis is that of the table; if not, all its elements
            are equal.
        row: what a row without a gradient has.
    """

    has_rows: bool
    row: _Row


def is_by_rows(
    change: UpdateFunction,
    cells: Sequence[jax.ShapeDtypeStruct],
    gradients: Sequence[jax.ShapeDtypeStruct],
    table: Collection[int],
    gradient: int,
    rows: int,
) -> bool:
    """Whether an update may be computed for the rows that have a gradient only.

    Args:
        change: a function from the values of cells and the gradients to new values.
        cells: the shape and type of each cell.
        gradients: the shape and type of each gradient.
        table: the places of the cells that have the rows: a variable and its slots.
        gradient: the place of the variable's gradient.
        rows: the number of rows to try it with.
    """

    def cut(x: jax.ShapeDtypeStruct, is_cut: bool) -> jax.ShapeDtypeStruct:
        shape = (rows, *x.shape[1:]) if is_cut else x.shape
        return jax.ShapeDtypeStruct(shape, x.dtype)

    few = [cut(x, i in table) for i, x in enumerate(cells)]
    some = [cut(x, i == gradient) for i, x in enumerate(gradients)]
    try:
        whole = equations.inline(jax.make_jaxpr(change)(list(cells), list(gradients)))
        part = equations.inline(jax.make_jaxpr(change)(few, some))
        marks = _walk(whole, part, len(cells), table, gradient)
    except (_NotByRows, TypeError, ValueError):
        return False
    wanted = [_Mark(True, i) if i in table else None for i in range(len(cells))]
    return marks == wanted


# As in `sharded_update`: if two programs differ in nothing but the number of rows, each
# row is computed by itself. Here it must follow, too, that a row without a gradient
# comes out as it went in.
def _walk(
    whole: ClosedProgram,
    part: ClosedProgram,
    count: int,
    table: Collection[int],
    gradient: int,
) -> list[_Mark | None]:
    """Return the marks of the results of an update."""
    if not equations.has_same_operations(whole, part):
        raise _NotByRows
    marks: dict[Var, _Mark] = {
        v: _Mark(True, i)
        for i, v in enumerate(whole.jaxpr.invars[:count])
        if i in table
    }
    marks[whole.jaxpr.invars[count + gradient]] = _Mark(True, _ZERO)
    for a, b in zip(whole.jaxpr.eqns, part.jaxpr.eqns, strict=True):
        given = [_mark_of(v, marks) for v in a.invars]
        found = _result(a, given)
        # Parameters may depend on the number of rows only where rows are followed.
        if found is None and not equations.has_same_params(a, b):
            raise _NotByRows
        marks.update((v, found) for v in a.outvars if found is not None)
    return [_mark_of(v, marks) for v in whole.jaxpr.outvars]


def _mark_of(v: Var | Literal, marks: dict[Var, _Mark]) -> _Mark | None:
    """Return the mark of an operand; None if it has nothing to do with the table."""
    if not equations.is_literal(v):
        return marks.get(v)
    return (
        _Mark(False, _ZERO if v.val == 0 else _ANY)
        if equations.aval_of(v).size == 1
        else None
    )


def _result(eqn: JaxprEqn, given: list[_Mark | None]) -> _Mark | None:
    """Return the mark of an equation's results."""
    name = eqn.primitive.name
    if not any(m is not None and m.has_rows for m in given):
        return _even_result(eqn, given)
    if name == "reduce_sum":
        (mark,) = given
        assert mark is not None
        return _sum_result(eqn, mark)
    if name not in ELEMENTWISE:
        raise _NotByRows
    for v, mark in zip(eqn.invars, given, strict=True):
        # An array of another variable has other rows; a number is for all rows.
        if mark is None and equations.aval_of(v).size != 1:
            raise _NotByRows
    return _Mark(True, _row(name, eqn, [_ANY if m is None else m.row for m in given]))


def _even_result(eqn: JaxprEqn, given: list[_Mark | None]) -> _Mark | None:
    """Return the mark of a result that does not depend on the table."""
    is_even = all(
        m is not None or equations.aval_of(v).size == 1
        for v, m in zip(eqn.invars, given, strict=True)
    )
    name, rows = eqn.primitive.name, [_ANY if m is None else m.row for m in given]
    if not is_even or equations.aval_of(eqn.outvars[0]).size == 1:
        return None
    if name == "broadcast_in_dim":
        return _Mark(False, rows[0])
    return _Mark(False, _row(name, eqn, rows)) if name in ELEMENTWISE else None


def _sum_result(eqn: JaxprEqn, mark: _Mark) -> _Mark | None:
    """Return the mark of a sum over rows, or within each."""
    if 0 not in eqn.params["axes"]:
        return _Mark(True, _ZERO if mark.row == _ZERO else _ANY)
    if mark.row != _ZERO:
        raise _NotByRows
    # Rows without a gradient add nothing: the sum is that of the others.
    return None


def _row(name: str, eqn: JaxprEqn, rows: list[_Row]) -> _Row:
    """Return the content of a row without a gradient after an elementwise operation."""
    first = rows[0]
    if name in _KEEP_ZERO:
        return _ZERO if first == _ZERO else _ANY
    if name in _KEEP:
        return first
    if name == "convert_element_type":
        old, new = equations.aval_of(eqn.invars[0]), equations.aval_of(eqn.outvars[0])
        is_same = old.dtype == new.dtype
        return first if is_same or first == _ZERO else _ANY
    if name in ("mul", "div"):
        # Zero times any value counts as zero, also where the value is not finite.
        parts = rows if name == "mul" else rows[:1]
        return _ZERO if _ZERO in parts else _ANY
    if name in ("add", "add_any"):
        # Zero plus what a cell had before is what it had before.
        rest = [r for r in rows if r != _ZERO]
        return _ZERO if not rest else rest[0] if len(rest) == 1 else _ANY
    if name == "sub":
        return first if rows[1] == _ZERO else _ANY
    if name == "select_n":
        return rows[1] if all(r == rows[1] for r in rows[1:]) else _ANY
    return _ANY
