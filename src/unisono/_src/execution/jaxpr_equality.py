"""Whether two traces of a function gave the same program."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from unisono._src.execution import replica_invariance

# Rules for derivatives, which JAX wraps anew in every trace.
_RULES = ("fun", "fwd", "bwd", "jvp", "rule", "thunk", "debug_info")


def is_same(a: Any, b: Any) -> bool:
    """Whether two closed programs do the same, equation by equation."""
    return _same_jaxpr(a.jaxpr, b.jaxpr) and _same_all(a.consts, b.consts)


def _same_jaxpr(a: Any, b: Any) -> bool:
    heads = [(j.constvars, j.invars) for j in (a, b)]
    if len(a.eqns) != len(b.eqns) or _lengths(heads[0]) != _lengths(heads[1]):
        return False
    names = dict(zip([*a.constvars, *a.invars], [*b.constvars, *b.invars], strict=True))
    for x, y in zip(a.eqns, b.eqns, strict=True):
        if x.primitive is not y.primitive or len(x.outvars) != len(y.outvars):
            return False
        if not _same_atoms(x.invars, y.invars, names) or not same_params(x, y):
            return False
        names.update(zip(x.outvars, y.outvars, strict=True))
    return _same_atoms(a.outvars, b.outvars, names)


def _lengths(head: Any) -> list[int]:
    return [len(part) for part in head]


def _same_atoms(a: Any, b: Any, names: dict[Any, Any]) -> bool:
    return len(a) == len(b) and all(
        _same_atom(x, y, names) for x, y in zip(a, b, strict=True)
    )


def _same_atom(x: Any, y: Any, names: dict[Any, Any]) -> bool:
    if x.aval != y.aval:
        return False
    if replica_invariance.is_literal(x) or replica_invariance.is_literal(y):
        return type(x) is type(y) and _same(x.val, y.val)
    return names.get(x) is y


def same_params(x: Any, y: Any) -> bool:
    """Whether two equations do the same with their operands."""
    if x.params.keys() != y.params.keys():
        return False
    return all(
        _same(value, y.params[key])
        for key, value in x.params.items()
        if not key.endswith(_RULES)
    )


def is_same_data(a: Any, b: Any) -> bool:
    """Whether two constants, or lists of them, are equal."""
    return _same_all(a, b) if isinstance(a, (list, tuple)) else _same(a, b)


def _same_all(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(map(_same, a, b))


def _same(x: Any, y: Any) -> bool:
    """Whether two parameters or constants are equal, as far as that can be told."""
    if x is y:
        return True
    if hasattr(x, "jaxpr") and hasattr(x, "consts"):
        return hasattr(y, "consts") and is_same(x, y)
    if hasattr(x, "eqns"):
        return hasattr(y, "eqns") and _same_jaxpr(x, y)
    if isinstance(x, (list, tuple)):
        return type(x) is type(y) and _same_all(x, y)
    if isinstance(x, (jax.core.Tracer, np.ndarray, np.generic, jax.Array)):
        return _same_array(x, y)
    # Functions and the like are made anew by every trace; what they do is in the
    # equations.
    if callable(x) or not _compares(x):
        return type(x) is type(y)
    # Not a number is what it is in both.
    return bool(x == y) or (isinstance(x, float) and x != x and y != y)


def _same_array(x: Any, y: Any) -> bool:
    if isinstance(x, jax.core.Tracer) or isinstance(y, jax.core.Tracer):
        return False
    if np.shape(x) != np.shape(y) or x.dtype != y.dtype:
        return False
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):
        x, y = jax.random.key_data(x), jax.random.key_data(y)
    is_float = bool(jax.numpy.issubdtype(x.dtype, jax.numpy.inexact))
    return bool(np.array_equal(np.asarray(x), np.asarray(y), equal_nan=is_float))


def _compares(x: Any) -> bool:
    """Whether equality of `x` means more than identity."""
    return any("__eq__" in vars(kind) for kind in type(x).__mro__[:-1])
