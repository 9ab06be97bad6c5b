"""Decides whether two traces of a function gave the same program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

from unisono._src.execution import equations
from unisono._src.foundation.jax_internals import ClosedProgram

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var

    # For each variable of a program, the one that stands in its place in the other.
    _Names: TypeAlias = dict[Var, Var]

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
    a: Sequence[equations.Atom],
    b: Sequence[equations.Atom],
    names: _Names,
    has_shapes: bool,
) -> bool:
    """Whether operands are equal; with `has_shapes`, in shape and type, too."""
    return len(a) == len(b) and all(
        _is_same_atom(x, y, names) and (x.aval == y.aval or not has_shapes)
        for x, y in zip(a, b, strict=True)
    )


def _is_same_atom(x: equations.Atom, y: equations.Atom, names: _Names) -> bool:
    """Whether two operands are equal constants, or variables that correspond."""
    if equations.is_literal(x):
        return equations.is_literal(y) and is_same_value(x.val, y.val)
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
    # A parameter that is NaN in both programs is equal, though `==` says it is not.
    return bool(x == y) or (isinstance(x, float) and x != x and y != y)


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
    is_float = bool(jax.numpy.issubdtype(x.dtype, jax.numpy.inexact))
    return bool(np.array_equal(np.asarray(x), np.asarray(y), equal_nan=is_float))


def _has_own_equality(x: object) -> bool:
    """Whether the class of `x` defines `==`, rather than inherit it from `object`."""
    return any("__eq__" in vars(kind) for kind in type(x).__mro__[:-1])
