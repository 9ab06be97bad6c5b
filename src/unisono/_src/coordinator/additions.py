"""Finds assignments that only add to a variable, as ``v.assign(v + x)`` does.

Such a sum is computed from a value that other workers may have changed since it was
read. If the server adds instead, nothing is lost. Metrics of Keras and Flax are written
this way. A value that is assigned as it was read is not sent at all: transformations of
Flax do so with all variables of a model.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from unisono._src.execution import equations
from unisono._src.execution.traced_function import TracedFunction

# `add_any` is the sum that JAX makes of gradients.
_SUMS = ("add", "add_any")
# A change that changes nothing.
_NOTHING = ""
# Primitives whose result is their operand.
_SAME = ("stop_gradient", "copy", "copy_p")


def find(found: TracedFunction) -> TracedFunction:
    """Returns a trace in which servers add where the program assigns a sum.

    Args:
        found: the trace, whose variables are on servers.
    """
    jaxpr = found.jaxpr
    made_by = {v: e for e in jaxpr.eqns for v in e.outvars}
    # The value of each cell as the program has it; unknown after other changes.
    current: dict[Any, Any] = dict(zip(found.read, jaxpr.invars, strict=False))
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


def _find_term(new: Any, old: Any, made_by: dict[Any, Any]) -> tuple[str, Any]:
    """Returns the kind of a change that gives a cell a new value, and its operand."""
    old = None if old is None else _origin(old, made_by)
    source = _origin(new, made_by)
    if old is not None and source is old:
        return _NOTHING, None
    equation = made_by.get(source)
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


def _origin(value: Any, made_by: dict[Any, Any]) -> Any:
    """Returns the variable of the program that first had a value; None for a number."""
    while not equations.is_literal(value):
        equation = made_by.get(value)
        if equation is None or equation.primitive.name not in _SAME:
            return value
        value = equation.invars[0]
    return None
