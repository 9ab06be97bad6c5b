"""Computing on parts of arrays what was written for whole ones, where that is the same.

An optimizer's update is a function of whole arrays. Most of it is element by element,
and can be computed by each replica for the part that it has. To know, the function is
traced twice, for whole arrays and for parts, and the two programs are compared equation
by equation: the same operations on the same constants, each of which goes element by
element or reduces. What is reduced over the axis that was cut is reduced over the
replicas too. Anything else is not computed by parts: a mean, for example, has the
number of elements in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.execution import jaxpr_equality, replica_invariance
from unisono._src.foundation import errors
from unisono._src.foundation.options import ReduceOp
from unisono._src.machines.topology import AXIS
from unisono._src.state import frames
from unisono._src.state.frames import Cell
from unisono._src.state.replica_frame import LocalFrame
from unisono._src.values import collectives

_log = logging.getLogger("unisono")

# How a value lies: cut along an axis (its number), the same on all replicas, or even
# the same in all its elements, so that a part of it is as good as the whole.
SAME, EVEN = "same", "even"


class NotByParts(errors.Signal):
    """A function cannot be computed by parts, or nobody knows how."""


def update(
    change: Callable[[list[Any]], list[Any]],
    cells: Sequence[Cell],
    gradients: Sequence[Any],
    kept: Collection[int],
) -> bool:
    """Let each replica of an SPMD program update its parts of cells that are cut.

    Gradients of those are summed part by part too, so that no replica has the whole of
    a sum or of a slot.

    Args:
        change: from the values of the cells, followed by the summed gradients, to new
            values of the cells.
        cells: what to update.
        gradients: the replica's own as `PerReplica`, for the first of the cells.
        kept: positions of cells that shall stay as they are.

    Returns:
        Whether it was done; if not, nothing was.
    """
    target, count = frames.frame(), len(gradients)
    if not isinstance(target, LocalFrame) or not target.cut.intersection(cells):
        return False
    if any(getattr(g, "local", None) is None for g in gradients):
        return False
    cuts = [c.split if c in target.cut else None for c in cells]
    own = [jnp.asarray(g.local) for g in gradients]
    every: list[Any] = [*cells, *own]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in every]
    try:
        found = Update(change, shapes, [*cuts, *cuts[:count]], cuts)
    except NotByParts as reason:
        _log.info("What was split is gathered for an update: %s", reason)
        return False
    summed = [
        split.scatter(g)
        if split
        else collectives.reduce_local(ReduceOp.SUM, g, c.copies)
        for g, c, split in zip(own, cells, cuts, strict=False)
    ]
    pairs = list(zip(cells, cuts, strict=True))
    first = next(c for c, split in pairs if split)
    target.alike.extend((first, x) for x in found.captured)
    old = [target.part(c) if split else target.whole(c) for c, split in pairs]
    for i, value in enumerate(found([*old, *summed])):
        if i not in kept:
            put = target.set_part if cuts[i] else target.set_whole
            put(cells[i], jnp.asarray(value, cells[i].dtype))
    return True


@final
class Update:
    """A function of arrays, some of which are cut over replicas.

    Args:
        fn: from a list of arrays to a list of arrays.
        inputs: for each input its shape and type.
        cuts: for each input, how it is cut (`layouts.Split`), or None.
        outputs: the same for each output.

    Raises:
        NotByParts: parts alone would give other numbers.
    """

    def __init__(
        self,
        fn: Callable[[list[Any]], list[Any]],
        inputs: Sequence[Any],
        cuts: Sequence[Any],
        outputs: Sequence[Any],
    ) -> None:
        parts = [_part(x, c) for x, c in zip(inputs, cuts, strict=True)]
        try:
            self._whole = jax.make_jaxpr(fn)(list(inputs))
            self._part = jax.make_jaxpr(fn)(parts)
        except (TypeError, ValueError) as error:
            raise NotByParts(str(error)) from error
        self._marks = [SAME if c is None else c.axis for c in cuts]
        wanted = [SAME if c is None else c.axis for c in outputs]
        found = self._walk([None] * len(parts), _look)[0]
        if len(found) != len(wanted):
            raise NotByParts("The function gives more or fewer arrays than expected.")
        for mark, want in zip(found, wanted, strict=True):
            if mark not in (want, EVEN):
                raise NotByParts(f"A result is {mark} where {want} was expected.")

    @property
    def captured(self) -> list[Any]:
        """Values from around the function; they must be the same on all replicas."""
        return [x for x in self._part.consts if isinstance(x, jax.core.Tracer)]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The own parts of the results, inside an SPMD program."""
        return self._walk(inputs, _compute)[1]

    def _walk(self, inputs: Sequence[Any], act: Any) -> tuple[list[Any], list[Any]]:
        whole, part = self._whole, self._part
        if not jaxpr_equality.is_same_data(whole.consts, part.consts):
            raise NotByParts("Constants depend on shapes.")
        marks = [SAME] * len(part.consts) + self._marks
        walk = _Walk(whole.jaxpr, part.jaxpr, act)
        return walk.run(marks, [*part.consts, *inputs])


def _part(x: Any, cut: Any) -> Any:
    shape = list(x.shape)
    if cut is not None:
        shape[cut.axis] //= cut.parts
    return jax.ShapeDtypeStruct(tuple(shape), x.dtype)


def _look(program: Any, eqn: Any, values: list[Any]) -> list[Any]:
    """Compute nothing."""
    return [None] * len(eqn.outvars)


def _compute(program: Any, eqn: Any, values: list[Any]) -> list[Any]:
    """One equation of a program, by a program that has no other."""
    given = zip(eqn.invars, values, strict=True)
    by_var = {v: x for v, x in given if not replica_invariance.is_literal(v)}
    alone = program.replace(
        constvars=[], invars=list(by_var), outvars=list(eqn.outvars), eqns=[eqn]
    )
    return jax.core.eval_jaxpr(alone, [], *by_var.values())


@final
class _Walk:
    """Two programs side by side: for whole arrays, and for parts of them."""

    def __init__(self, whole: Any, part: Any, act: Any) -> None:
        self._whole, self._part, self._act = whole, part, act
        self._known: dict[Any, tuple[Any, Any]] = {}

    def run(
        self, marks: Sequence[Any], values: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """How the outputs lie, and what they are."""
        whole, part = self._whole, self._part
        heads = [*part.constvars, *part.invars]
        self._known = dict(zip(heads, zip(marks, values, strict=True), strict=True))
        if len(whole.eqns) != len(part.eqns):
            raise NotByParts("Programs for parts and wholes differ.")
        for of_whole, of_part in zip(whole.eqns, part.eqns, strict=True):
            if of_whole.primitive is not of_part.primitive:
                raise NotByParts("Programs for parts and wholes differ.")
            self._check_literals(of_whole.invars, of_part.invars)
            self._equation(of_whole, of_part)
        self._check_literals(whole.outvars, part.outvars)
        found = [self._look_up(v) for v in part.outvars]
        return [m for m, _ in found], [x for _, x in found]

    def _look_up(self, atom: Any) -> tuple[Any, Any]:
        if not replica_invariance.is_literal(atom):
            return self._known[atom]
        return (SAME if atom.aval.shape else EVEN), atom.val

    def _check_literals(self, whole: Sequence[Any], part: Sequence[Any]) -> None:
        for x, y in zip(whole, part, strict=True):
            is_one = replica_invariance.is_literal(x), replica_invariance.is_literal(y)
            if is_one[0] != is_one[1] or (
                is_one[0] and not jaxpr_equality.is_same_data(x.val, y.val)
            ):
                raise NotByParts("A number depends on the shape of an array.")

    def _equation(self, whole: Any, part: Any) -> None:
        found = [self._look_up(v) for v in part.invars]
        marks = [
            EVEN if m == SAME and not v.aval.shape else m
            for (m, _), v in zip(found, part.invars, strict=True)
        ]
        values = [x for _, x in found]
        name = part.primitive.name
        if name in _CALLS:
            pair = _inner(whole), _inner(part)
            out, new = self._inside(pair, marks, values)
        elif name == "cond":
            out, new = self._branch(whole, part, marks, values)
        else:
            out = [self._mark(name, whole, part, marks)] * len(part.outvars)
            new = self._act(self._part, part, values)
            if self._act is _compute and self._is_over_cut(part, marks):
                new = [_REDUCED[name](x, AXIS) for x in new]
        self._known.update(zip(part.outvars, zip(out, new, strict=True), strict=True))

    def _inside(
        self, pair: tuple[Any, Any], marks: list[Any], values: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """A program inside the program."""
        whole, part = pair
        if not jaxpr_equality.is_same_data(whole.consts, part.consts):
            raise NotByParts("Constants depend on shapes.")
        walk = _Walk(whole.jaxpr, part.jaxpr, self._act)
        return walk.run([SAME] * len(part.consts) + marks, [*part.consts, *values])

    def _branch(
        self, whole: Any, part: Any, marks: list[Any], values: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """One of several programs, the same one on all replicas."""
        pairs = list(
            zip(whole.params["branches"], part.params["branches"], strict=True)
        )
        if isinstance(marks[0], int):
            raise NotByParts("Replicas could take different branches.")
        looks = [_Walk(p[0].jaxpr, p[1].jaxpr, _look) for p in pairs]
        nothing = [None] * (len(marks) - 1)
        every = [
            look._inside(p, marks[1:], nothing)[0]
            for look, p in zip(looks, pairs, strict=True)
        ]
        out = [_common(column) for column in zip(*every, strict=True)]
        if self._act is _look:
            return out, [None] * len(out)

        def taken(pair: Any) -> Any:
            return lambda *given: self._inside(pair, marks[1:], given)[1]

        return out, list(jax.lax.switch(values[0], [*map(taken, pairs)], *values[1:]))

    def _mark(self, name: str, whole: Any, part: Any, marks: list[Any]) -> Any:
        """How the result of an equation lies."""
        if name in _REDUCED:
            return self._reduced(whole, part, marks[0])
        if name == "broadcast_in_dim" and marks[0] == EVEN:
            return EVEN
        if replica_invariance.separates(part):
            raise NotByParts(f"`{name}` gives each replica another value.")
        is_same = jaxpr_equality.same_params(whole, part)
        if name in _ELEMENTWISE and is_same:
            return _common(marks)
        is_cut = any(isinstance(m, int) for m in marks)
        if is_cut or not is_same or _shapes(whole) != _shapes(part):
            raise NotByParts(f"`{name}` does not go element by element.")
        return SAME

    def _reduced(self, whole: Any, part: Any, mark: Any) -> Any:
        axes = part.params["axes"]
        if whole.params["axes"] != axes:
            raise NotByParts("Programs for parts and wholes differ.")
        if not isinstance(mark, int):
            if _shapes(whole) != _shapes(part):
                raise NotByParts("A sum depends on the number of elements.")
            return mark
        if mark in axes:
            is_number = part.invars[0].aval.dtype != bool
            if part.primitive.name in _LOGICAL and is_number:
                raise NotByParts("Bits of numbers are combined over all elements.")
            return SAME
        return mark - sum(a < mark for a in axes)

    def _is_over_cut(self, part: Any, marks: list[Any]) -> bool:
        if part.primitive.name not in _REDUCED or not isinstance(marks[0], int):
            return False
        return marks[0] in part.params["axes"]


def _common(marks: Sequence[Any]) -> Any:
    """How arrays lie that belong together."""
    found = {m for m in marks if m != EVEN}
    if len(found) > 1:
        raise NotByParts("Arrays that are cut in different ways meet.")
    return found.pop() if found else EVEN


def _all(x: Any, axis: str) -> Any:
    return jax.lax.pmin(x.astype(jnp.int32), axis).astype(bool)


def _any(x: Any, axis: str) -> Any:
    return jax.lax.pmax(x.astype(jnp.int32), axis).astype(bool)


def _shapes(eqn: Any) -> list[Any]:
    return [v.aval.shape for v in (*eqn.invars, *eqn.outvars)]


def _inner(eqn: Any) -> Any:
    found = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    if not hasattr(found, "consts"):
        raise NotByParts(f"`{eqn.primitive.name}` has no program of its own.")
    return found


_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call"}
_REDUCED = {
    "reduce_sum": jax.lax.psum,
    "reduce_max": jax.lax.pmax,
    "reduce_min": jax.lax.pmin,
    "reduce_and": _all,
    "reduce_or": _any,
}
_LOGICAL = {"reduce_and", "reduce_or"}
_ELEMENTWISE = {
    "abs", "add", "add_any", "and", "atan2", "cbrt", "ceil", "clamp",
    "convert_element_type", "copy", "copy_p", "cos", "div", "eq", "erf", "exp", "exp2",
    "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow",
    "reduce_precision", "rem", "reshard", "round", "rsqrt", "select_n", "sign", "sin",
    "sqrt", "square", "stop_gradient", "sub", "tanh", "xor",
}  # fmt: skip
