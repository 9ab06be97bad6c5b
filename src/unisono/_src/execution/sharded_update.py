"""Computes an update on parts of arrays where that gives the same numbers.

An optimizer's update is a function of whole arrays. Most of it goes element by element,
so each replica can compute it for the part that it has. To make sure, the function is
traced for whole arrays and for parts, and the two programs are compared equation by
equation. They must do the same operations with the same constants, and each operation
must go element by element or reduce. A reduction over the axis that is cut goes on over
the replicas. Any other function is not computed by parts: a mean, for example, divides
by the number of elements, which differs (decision 0017).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import jax
import jax.numpy as jnp

from unisono._src.execution import equations, value_sources
from unisono._src.foundation import errors
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.foundation.options import ReduceOp
from unisono._src.machines.partition import Split
from unisono._src.machines.topology import AXIS
from unisono._src.state import frames
from unisono._src.state.replica_frame import LocalFrame
from unisono._src.state.storage import Cell
from unisono._src.values import collectives

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn

    _Act: TypeAlias = Callable[[Jaxpr, JaxprEqn, list[jax.Array]], list[jax.Array]]
    # The programs for whole arrays and for parts.
    _Pair: TypeAlias = tuple[ClosedProgram, ClosedProgram]

_log = logging.getLogger("unisono")

# Every value of a program has a mark. A split: the value is cut in this way.
# SAME: it is whole, and the same on all replicas. EVEN: besides, all its elements are
# equal, so that a part of it is as good as the whole.
SAME, EVEN = "same", "even"
Mark = Split | str
_Marked = tuple[Mark, jax.Array]
# The replicas that have all parts together; None for all replicas.
Groups: TypeAlias = list[list[int]] | None


class NotByParts(errors.Signal):
    """A function cannot be computed by parts, as far as can be told."""


def update(
    change: Callable[[list[Any]], list[Any]],
    cells: Sequence[Cell],
    gradients: Sequence[Any],
    kept: Collection[int],
) -> bool:
    """Update cells inside an SPMD program; each replica updates its own parts.

    Gradients of cut cells are summed part by part too, so that no replica holds a whole
    sum or a whole slot of the optimizer.

    Args:
        change: a function from the values of the cells, followed by the summed
            gradients, to new values of the cells.
        cells: the cells to update.
        gradients: the replica's own gradients as `PerReplica`, for the first cells.
        kept: positions of cells that must stay as they are.

    Returns:
        Whether the update was done. If not, nothing has changed, and the caller has to
        compute it on whole arrays.
    """
    target, count = frames.frame(), len(gradients)
    if not isinstance(target, LocalFrame) or not target.cut.intersection(cells):
        return False
    # Already reduced, or not this replica's own: there is nothing to sum by parts.
    if any(getattr(g, "local", None) is None for g in gradients):
        return False
    cuts = [c.split if c in target.cut else None for c in cells]
    own = [jnp.asarray(g.local) for g in gradients]
    every: list[Any] = [*cells, *own]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in every]
    try:
        found = PartwiseUpdate(change, shapes, [*cuts, *cuts[:count]], cuts)
    except NotByParts as reason:
        _log.info("A split variable is gathered for an update: %s", reason)
        return False
    # Each replica gets its part of the sum; of cells that are not cut, the whole sum.
    summed = [
        split.scatter(g)
        if split
        else collectives.reduce_local(ReduceOp.SUM, g, c.copies)
        for g, c, split in zip(own, cells, cuts, strict=False)
    ]
    pairs = list(zip(cells, cuts, strict=True))
    # Values that `change` captures are the same for all parts, so they must be proved
    # equal on all replicas; `spmd` does that for what is in `alike`.
    first = next(c for c, split in pairs if split)
    target.alike.extend((first, x) for x in found.captured_values)
    old = [target.part(c) if split else target.whole(c) for c, split in pairs]
    for i, value in enumerate(found([*old, *summed])):
        if i not in kept:
            put = target.set_part if cuts[i] else target.set_whole
            put(cells[i], jnp.asarray(value, cells[i].dtype))
    return True


@final
class PartwiseUpdate:
    """A function of arrays that replicas compute for their parts of the arrays.

    Args:
        fn: a function from a list of arrays to a list of arrays.
        inputs: the shape and type of each whole input.
        cuts: how each input is cut (`partition.Split`); None if it is whole.
        outputs: how each output is cut, likewise.

    Raises:
        NotByParts: the parts would get other numbers than the whole arrays.
    """

    def __init__(
        self,
        fn: Callable[[list[Any]], list[Any]],
        inputs: Sequence[equations.HasShape],
        cuts: Sequence[Split | None],
        outputs: Sequence[Split | None],
    ) -> None:
        parts = [_part_shape(x, c) for x, c in zip(inputs, cuts, strict=True)]
        try:
            self._pair = jax.make_jaxpr(fn)(list(inputs)), jax.make_jaxpr(fn)(parts)
        except (TypeError, ValueError) as error:
            raise NotByParts(str(error)) from error
        self._marks: list[Mark] = [SAME if c is None else c for c in cuts]
        wanted = [SAME if c is None else c for c in outputs]
        # The first walk only proves that parts get the right numbers; `__call__`
        # computes.
        nothing: list[Any] = [None] * len(parts)
        found = _Walk(self._pair, _compute_nothing).run(self._marks, nothing)[0]
        if len(found) != len(wanted):
            raise NotByParts("The function gives more or fewer arrays than expected.")
        for mark, want in zip(found, wanted, strict=True):
            if mark not in (want, EVEN):
                raise NotByParts(f"A result is {mark} where {want} was expected.")

    @property
    def captured_values(self) -> list[Any]:
        """The traced values that the function captures; replicas must share them."""
        return [x for x in self._pair[1].consts if isinstance(x, jax.core.Tracer)]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the replica's parts of the results, inside an SPMD program."""
        return _Walk(self._pair, equations.compute).run(self._marks, inputs)[1]


def _part_shape(x: equations.HasShape, cut: Split | None) -> jax.ShapeDtypeStruct:
    """Return the shape and type of a replica's part of an array."""
    shape = list(x.shape)
    if cut is not None:
        shape[cut.axis] //= cut.parts
    return jax.ShapeDtypeStruct(tuple(shape), x.dtype)


def _compute_nothing(
    program: Jaxpr, eqn: JaxprEqn, values: list[jax.Array]
) -> list[Any]:
    """Compute nothing: give None for each result of an equation."""
    return [None] * len(eqn.outvars)


@final
class _Walk:
    """Goes through a program for whole arrays and one for parts, side by side.

    Args:
        pair: the programs for whole arrays and for parts.
        act: `equations.compute` to compute the values of parts, or `_compute_nothing`
            to find marks only.
    """

    def __init__(self, pair: _Pair, act: _Act) -> None:
        self._whole, self._part = pair
        self._act = act

    def run(
        self, marks: Sequence[Mark], values: Sequence[jax.Array]
    ) -> tuple[list[Mark], list[jax.Array]]:
        """Return the marks of the outputs, and their values.

        Args:
            marks: the marks of the inputs.
            values: their values.

        Raises:
            NotByParts: the parts would get other numbers than the whole arrays.
        """
        if not equations.has_same_operations(self._whole, self._part):
            raise NotByParts("Operations or constants depend on the shapes of arrays.")
        rest = iter(self._whole.jaxpr.eqns)
        found = equations.interpret(
            self._part.jaxpr,
            [(SAME, x) for x in self._part.consts],
            list(zip(marks, values, strict=True)),
            lambda eqn, given: self._follow_equation(next(rest), eqn, given),
            lambda v: (SAME if equations.aval_of(v).shape else EVEN, v.val),
        )
        return [m for m, _ in found], [x for _, x in found]

    def _follow_equation(
        self, whole: JaxprEqn, part: JaxprEqn, given: list[_Marked]
    ) -> list[_Marked]:
        """Return the marks and values of an equation's results."""
        # A scalar has one element, so a part of it is the whole.
        marks = [
            EVEN if m == SAME and not equations.aval_of(v).shape else m
            for (m, _), v in zip(given, part.invars, strict=True)
        ]
        values = [x for _, x in given]
        name = part.primitive.name
        if name in equations.CALLS:
            pair = _inner_program(whole), _inner_program(part)
            out, new = _Walk(pair, self._act).run(marks, values)
        elif name == "cond":
            out, new = self._run_cond(whole, part, marks, values)
        else:
            out = [self._result_mark(name, whole, part, marks)] * len(part.outvars)
            new = self._act(self._part.jaxpr, part, values)
            # Each replica has reduced its part; the collective continues over all.
            if self._act is equations.compute and self._is_over_cut(part, marks):
                groups = marks[0].groups if isinstance(marks[0], Split) else None
                new = [_REDUCTIONS[name](x, AXIS, groups) for x in new]
        return list(zip(out, new, strict=True))

    def _run_cond(
        self,
        whole: JaxprEqn,
        part: JaxprEqn,
        marks: list[Mark],
        values: list[jax.Array],
    ) -> tuple[list[Mark], list[jax.Array]]:
        """Return the marks and values of the results of a `cond`."""
        pairs = list(
            zip(whole.params["branches"], part.params["branches"], strict=True)
        )
        if isinstance(marks[0], Split):
            raise NotByParts("Replicas could take different branches.")
        # All branches together decide how the results are cut.
        nothing: list[Any] = [None] * (len(marks) - 1)
        every = [_Walk(p, _compute_nothing).run(marks[1:], nothing)[0] for p in pairs]
        out = [_common_mark(column) for column in zip(*every, strict=True)]
        if self._act is _compute_nothing:
            return out, _compute_nothing(self._part.jaxpr, part, values)

        def branch_of(pair: _Pair) -> Callable[..., list[jax.Array]]:
            return lambda *given: _Walk(pair, self._act).run(marks[1:], given)[1]

        return out, list(
            jax.lax.switch(values[0], [*map(branch_of, pairs)], *values[1:])
        )

    def _result_mark(
        self, name: str, whole: JaxprEqn, part: JaxprEqn, marks: list[Mark]
    ) -> Mark:
        """Return the mark of an equation's results."""
        if name in _REDUCTIONS:
            return self._reduction_mark(whole, part, marks[0])
        # A broadcast of equal elements gives equal elements, of whatever shape.
        if name == "broadcast_in_dim" and marks[0] == EVEN:
            return EVEN
        if value_sources.may_separate(part):
            raise NotByParts(f"`{name}` gives each replica another value.")
        is_same = equations.has_same_params(whole, part)
        if name in ELEMENTWISE and is_same:
            return _common_mark(marks)
        # Any other operation is allowed on values that are whole in both programs.
        is_cut = any(isinstance(m, Split) for m in marks)
        if is_cut or not is_same or _shapes_of(whole) != _shapes_of(part):
            raise NotByParts(f"`{name}` does not go element by element.")
        return SAME

    def _reduction_mark(self, whole: JaxprEqn, part: JaxprEqn, mark: Mark) -> Mark:
        """Return the mark of a reduction's result."""
        axes = part.params["axes"]
        if whole.params["axes"] != axes:
            raise NotByParts("Programs for parts and wholes differ.")
        if not isinstance(mark, Split):
            if _shapes_of(whole) != _shapes_of(part):
                raise NotByParts("A sum depends on the number of elements.")
            return mark
        if mark.axis in axes:
            # `reduce_and` of integers combines bits, for which there is no collective.
            is_number = equations.aval_of(part.invars[0]).dtype != bool
            if part.primitive.name in _LOGICAL and is_number:
                raise NotByParts("Bits of numbers are combined over all elements.")
            return SAME
        # The axes that are reduced away before the cut one shift its number.
        before = [a for a in axes if a < mark.axis]
        return dataclasses.replace(mark, axis=mark.axis - len(before))

    def _is_over_cut(self, part: JaxprEqn, marks: list[Mark]) -> bool:
        """Whether an equation reduces over the axis that is cut."""
        if part.primitive.name not in _REDUCTIONS or not isinstance(marks[0], Split):
            return False
        return marks[0].axis in part.params["axes"]


def _common_mark(marks: Sequence[Mark]) -> Mark:
    """Return the mark of a result whose elements come from all these operands."""
    found = {m for m in marks if m != EVEN}
    if len(found) > 1:
        raise NotByParts("Arrays that are cut in different ways meet.")
    return found.pop() if found else EVEN


def _sum(x: jax.Array, axis: str, groups: Groups) -> jax.Array:
    """Return the sum over the replicas of a group, element by element."""
    found: jax.Array = jax.lax.psum(x, axis, axis_index_groups=groups)
    return found


def _largest(x: jax.Array, axis: str, groups: Groups) -> jax.Array:
    """Return the largest of the values of a group, element by element."""
    found: jax.Array = jax.lax.pmax(x, axis, axis_index_groups=groups)
    return _keep_nan(x, found, axis, groups)


def _keep_nan(x: jax.Array, found: jax.Array, axis: str, groups: Groups) -> jax.Array:
    """Return an extreme of a group, which is NaN if a value is.

    The collectives of XLA for CPUs pass over NaN.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return found
    has_nan = jnp.isnan(x).astype(jnp.int32)
    any_nan = jax.lax.pmax(has_nan, axis, axis_index_groups=groups)
    return jnp.where(any_nan > 0, jnp.nan, found)


def _smallest(x: jax.Array, axis: str, groups: Groups) -> jax.Array:
    """Return the smallest of the values of a group, element by element."""
    found: jax.Array = jax.lax.pmin(x, axis, axis_index_groups=groups)
    return _keep_nan(x, found, axis, groups)


def _is_true_on_all(x: jax.Array, axis: str, groups: Groups) -> jax.Array:
    """Whether `x` is true on all replicas of a group, element by element."""
    return _smallest(x.astype(jnp.int32), axis, groups).astype(bool)


def _is_true_on_any(x: jax.Array, axis: str, groups: Groups) -> jax.Array:
    """Whether `x` is true on any replica of a group, element by element."""
    return _largest(x.astype(jnp.int32), axis, groups).astype(bool)


def _shapes_of(eqn: JaxprEqn) -> list[Any]:
    return [equations.aval_of(v).shape for v in (*eqn.invars, *eqn.outvars)]


def _inner_program(eqn: JaxprEqn) -> ClosedProgram:
    """Return the program inside an equation that calls one."""
    found = equations.inlinable_program(eqn)
    if found is None:
        raise NotByParts(f"`{eqn.primitive.name}` has no program of its own.")
    return found


# Primitives by name: reductions with the collective that
# continues each over the replicas, and those that go element by element.
_REDUCTIONS = {
    "reduce_sum": _sum,
    "reduce_max": _largest,
    "reduce_min": _smallest,
    "reduce_and": _is_true_on_all,
    "reduce_or": _is_true_on_any,
}
_LOGICAL = {"reduce_and", "reduce_or"}
ELEMENTWISE = {
    "abs", "add", "add_any", "and", "atan2", "cbrt", "ceil", "clamp",
    "convert_element_type", "copy", "copy_p", "cos", "div", "eq", "erf", "exp", "exp2",
    "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow",
    "reduce_precision", "rem", "reshard", "round", "rsqrt", "select_n", "sign", "sin",
    "sqrt", "square", "stop_gradient", "sub", "tanh", "xor",
}  # fmt: skip
