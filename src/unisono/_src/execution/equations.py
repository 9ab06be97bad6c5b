"""Reads, computes, inlines and compares the equations of JAX's programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import jax
import numpy as np

from unisono._src.foundation.jax_internals import ClosedProgram

if TYPE_CHECKING:
    # It takes long to load.
    from jax.extend.core import Jaxpr, JaxprEqn, Literal, Primitive, Var
    from typing_extensions import TypeIs

    Atom: TypeAlias = Var | Literal

    # For each variable of a program, the one that stands in its place in the other.
    _Names: TypeAlias = dict[Var, Var]


_T = TypeVar("_T")


class HasShape(Protocol):
    """An array, a variable, or what describes one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def dtype(self) -> np.dtype:
        """The element type."""


# Primitives that call a program whose equations may stand in place of the call.
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call"}
# These have rules of their own for gradients.
_ALL_CALLS = {*CALLS, "custom_vjp_call", "remat", "remat2", "checkpoint"}


def is_literal(atom: Atom) -> TypeIs[Literal]:
    """Whether an operand of a program is a constant."""
    # Not by `isinstance`: the class is in `jax.extend`, which takes long to load.
    return hasattr(atom, "val")


def aval_of(atom: Atom) -> jax.core.ShapedArray:
    """Return the shape and type of an operand or result."""
    found: jax.core.ShapedArray = atom.aval  # type: ignore[assignment]
    return found


def variables_of(atoms: Sequence[Atom]) -> list[Var]:
    """Return the operands that are no constants."""
    return [v for v in atoms if not hasattr(v, "val")]


def scan_counts(eqn: JaxprEqn) -> tuple[int, int]:
    """Return how many operands of a scan are constants, and how many are carried."""
    if "num_consts" in eqn.params:
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].unpack()  # Since JAX 0.12.
    return len(consts), len(carry)


def called_program(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[jax.Array]] | None:
    """Return the program that an equation calls once, with its constants, if any."""
    if eqn.primitive.name not in _ALL_CALLS:
        return None
    called = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    found = jaxpr_of(called)
    return None if found is None else (found, getattr(called, "consts", ()))


def inlinable_program(eqn: JaxprEqn) -> ClosedProgram | None:
    """Return the program that may stand in place of an equation, if there is one."""
    called = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    is_closed = eqn.primitive.name in CALLS and hasattr(called, "consts")
    return called if is_closed else None


def jaxpr_of(parameter: object) -> Jaxpr | None:
    """Return the program that a parameter of an equation is or wraps, if any."""
    found: Any = getattr(parameter, "jaxpr", parameter)
    return found if hasattr(found, "eqns") else None


def inner(eqn: JaxprEqn) -> list[Jaxpr]:
    """Return the programs inside an equation."""
    found = map(jaxpr_of, jax.tree.leaves(list(eqn.params.values())))
    return [p for p in found if p is not None]


def walk(jaxpr: Jaxpr, into_replicas: bool = True) -> Iterator[JaxprEqn]:
    """Yield all equations of a program, each before those of the programs inside it.

    Args:
        jaxpr: the program.
        into_replicas: whether to look into the programs of replicas too.
    """
    for eqn in jaxpr.eqns:
        yield eqn
        if into_replicas or eqn.primitive.name != "shard_map":
            for program in inner(eqn):
                yield from walk(program, into_replicas)


def inline(closed: ClosedProgram, with_branches: bool = False) -> ClosedProgram:
    """Return a program with the programs that it calls put in place of the calls.

    Args:
        closed: the program.
        with_branches: whether branches are put in place, too: all are computed, and the
            results of one are selected. It holds for those without side effects.
    """

    def run(*args: jax.Array) -> list[jax.Array]:
        return _evaluate(closed.jaxpr, closed.consts, args, with_branches)

    return jax.make_jaxpr(run)(*closed.in_avals)


def compute(
    program: Jaxpr, eqn: JaxprEqn, values: Sequence[jax.Array]
) -> list[jax.Array]:
    """Return the results of one equation of a program."""
    # JAX evaluates programs, so make one of this equation alone.
    given = zip(eqn.invars, values, strict=True)
    by_var = {v: x for v, x in given if not is_literal(v)}
    alone = program.replace(
        constvars=[], invars=list(by_var), outvars=list(eqn.outvars), eqns=[eqn]
    )
    return jax.core.eval_jaxpr(alone, [], *by_var.values())


def interpret(
    jaxpr: Jaxpr,
    consts: Sequence[_T],
    args: Sequence[_T],
    follow: Callable[[JaxprEqn, list[_T]], Sequence[_T]],
    constant: Callable[[Literal], _T],
) -> list[_T]:
    """Return what is found out about the outputs of a program, equation by equation.

    Args:
        jaxpr: the program.
        consts: what is known about its constants.
        args: what is known about its inputs.
        follow: returns this for the results of an equation, given that of its operands.
        constant: returns it for a constant operand.
    """
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))

    def find(atom: Atom) -> _T:
        return constant(atom) if is_literal(atom) else known[atom]

    for eqn in jaxpr.eqns:
        found = follow(eqn, [find(v) for v in eqn.invars])
        known.update(zip(eqn.outvars, found, strict=True))
    return [find(v) for v in jaxpr.outvars]


def value_of(literal: Literal) -> Any:
    """Return the value of a constant operand."""
    return literal.val


def _evaluate(
    jaxpr: Jaxpr,
    consts: Sequence[jax.Array],
    args: Sequence[jax.Array],
    with_branches: bool,
) -> list[jax.Array]:
    """Return the results of a program, equation by equation."""

    def follow(eqn: JaxprEqn, given: list[jax.Array]) -> list[jax.Array]:
        called = inlinable_program(eqn)
        if called is not None:
            return _evaluate(called.jaxpr, called.consts, given, with_branches)
        if not (with_branches and eqn.primitive.name == "cond" and not eqn.effects):
            return compute(jaxpr, eqn, given)
        # Evaluate every branch and select: a branch cannot be cut, a selection can.
        which, *rest = given
        branches = [
            _evaluate(b.jaxpr, b.consts, rest, True) for b in eqn.params["branches"]
        ]
        return [jax.lax.select_n(which, *xs) for xs in zip(*branches, strict=True)]

    return interpret(jaxpr, consts, args, follow, value_of)


def find_equation(jaxpr: Jaxpr, primitive: Primitive) -> JaxprEqn | None:
    """Return the first equation of a primitive in a program, at any depth, or None."""
    for equation in jaxpr.eqns:
        if equation.primitive is primitive:
            return equation
        below = (find_equation(p, primitive) for p in inner(equation))
        found = next((e for e in below if e is not None), None)
        if found is not None:
            return found
    return None


_Array = jax.Array | np.ndarray | np.generic
# Endings of the names of parameters that JAX makes anew in every trace: rules for
# derivatives, and places in the source.
_MADE_ANEW = ("fun", "fwd", "bwd", "jvp", "rule", "thunk", "debug_info")


def is_same(a: ClosedProgram, b: ClosedProgram) -> bool:
    """Whether two closed programs have the same equations and constants."""
    return _is_same_jaxpr(a.jaxpr, b.jaxpr) and _are_all_same(a.consts, b.consts)


def has_same_operations(a: ClosedProgram, b: ClosedProgram) -> bool:
    """Whether two programs do the same operations with the same values.

    Shapes may differ, and so may all other parameters of the operations.
    """
    same = _is_same_jaxpr(a.jaxpr, b.jaxpr, has_shapes=False)
    return same and _are_all_same(a.consts, b.consts)


def _is_same_jaxpr(a: Jaxpr, b: Jaxpr, has_shapes: bool = True) -> bool:
    """Whether two programs are equal up to the names of their variables.

    Args:
        a: a program.
        b: another program.
        has_shapes: whether shapes and parameters must be equal, too.
    """
    heads = [[len(j.constvars), len(j.invars), len(j.eqns)] for j in (a, b)]
    if heads[0] != heads[1]:
        return False
    pairs = zip([*a.constvars, *a.invars], [*b.constvars, *b.invars], strict=True)
    names = dict(pairs)
    for x, y in zip(a.eqns, b.eqns, strict=True):
        if x.primitive is not y.primitive or len(x.outvars) != len(y.outvars):
            return False
        if not _are_same_atoms(x.invars, y.invars, names, has_shapes):
            return False
        if has_shapes and not has_same_params(x, y):
            return False
        names.update(zip(x.outvars, y.outvars, strict=True))
    return _are_same_atoms(a.outvars, b.outvars, names, has_shapes)


def _are_same_atoms(
    a: Sequence[Atom],
    b: Sequence[Atom],
    names: _Names,
    has_shapes: bool,
) -> bool:
    """Whether operands are equal; with `has_shapes`, in shape and type, too."""
    return len(a) == len(b) and all(
        _is_same_atom(x, y, names) and (x.aval == y.aval or not has_shapes)
        for x, y in zip(a, b, strict=True)
    )


def _is_same_atom(x: Atom, y: Atom, names: _Names) -> bool:
    """Whether two operands are equal constants, or variables that correspond."""
    if is_literal(x):
        return is_literal(y) and is_same_value(x.val, y.val)
    return names.get(x) is y


def has_same_params(x: JaxprEqn, y: JaxprEqn) -> bool:
    """Whether two equations have equal parameters."""
    if x.params.keys() != y.params.keys():
        return False
    return all(
        is_same_value(value, y.params[key])
        for key, value in x.params.items()
        if not key.endswith(_MADE_ANEW)
    )


def _are_all_same(a: Sequence[object], b: Sequence[object]) -> bool:
    return len(a) == len(b) and all(map(is_same_value, a, b))


def is_same_value(x: Any, y: Any) -> bool:
    """Whether two parameters or constants are equal, as far as that can be told."""
    if x is y:
        return True
    if hasattr(x, "jaxpr") and hasattr(x, "consts"):
        return hasattr(y, "consts") and is_same(x, y)
    if hasattr(x, "eqns"):
        return hasattr(y, "eqns") and _is_same_jaxpr(x, y)
    if isinstance(x, (list, tuple)):
        return type(x) is type(y) and _are_all_same(x, y)
    if isinstance(x, (jax.core.Tracer, np.ndarray, np.generic, jax.Array)):
        return _is_same_array(x, y)
    # Every trace makes functions and the like anew, so comparing them says nothing;
    # their effect is in the equations, which are compared.
    if callable(x) or not _has_own_equality(x):
        return type(x) is type(y)
    if isinstance(x, float):
        # NaN is equal to NaN, and 0.0 is not equal to -0.0; `==` says otherwise.
        return type(x) is type(y) and np.float64(x).tobytes() == np.float64(y).tobytes()
    return bool(x == y)


def _is_same_array(x: _Array, y: _Array) -> bool:
    """Whether two constant arrays have equal shapes, types and elements."""
    if isinstance(x, jax.core.Tracer) or isinstance(y, jax.core.Tracer):
        # Their numbers are not known yet, so nothing proves that they are equal.
        return False
    if np.shape(x) != np.shape(y) or x.dtype != y.dtype:
        return False
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):
        assert isinstance(x, jax.Array) and isinstance(y, jax.Array)
        x, y = jax.random.key_data(x), jax.random.key_data(y)
    # Bits, so that NaN is equal to NaN, and 0.0 is not equal to -0.0.
    if not x.dtype.itemsize:  # The gradients of integers have no bits.
        return True
    a, b = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (x, y))
    return np.array_equal(a, b)


def _has_own_equality(x: object) -> bool:
    """Whether the class of `x` defines `==`, rather than inherit it from `object`."""
    return any("__eq__" in vars(kind) for kind in type(x).__mro__[:-1])
