"""The targets and sources that a tape is asked about, and the pullback between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from unisono._src.execution import equations
from unisono._src.foundation import library_hooks, nest
from unisono._src.state import reading, sharded_variable, variables
from unisono._src.values import array_operators, jax_tapes, row_positions
from unisono._src.values.indexed_slices import IndexedSlices, concatenate
from unisono._src.values.jax_tapes import Recording

# Our variables, and what stands for one of another library, made outside every scope.
VARIABLES = (variables.Variable, library_hooks.LibraryVariable)
_Operand = jax.Array | variables.Variable | library_hooks.LibraryVariable


def find_operand(x: object, role: str) -> _Operand:
    """Return an array or a variable, as `find_variable` does."""
    found = find_variable(x)
    if isinstance(found, (jax.Array, *VARIABLES)):
        return found
    if isinstance(found, sharded_variable.ShardedVariable):
        return found.value()
    raise TypeError(
        f"Expected arrays and variables as `{role}`, received {type(x).__name__}: "
        f"{x!r}. A number or an array of NumPy must be made an array first, with "
        "unisono.constant."
    )


def find_variable(x: object) -> Any:
    """Return what stands for a variable of another library; else `x` itself.

    It is the variable of ours that keeps the value, or a `LibraryVariable` if there is
    none.
    """
    found = array_operators.find_own_variable(x)
    if isinstance(found, (jax.Array, variables.Variable)):
        return found
    held = library_hooks.find_state(found)
    return held if isinstance(held, library_hooks.LibraryVariable) else found


def read(x: variables.Variable | library_hooks.LibraryVariable) -> jax.Array:
    """Return the value of a variable."""
    if isinstance(x, library_hooks.LibraryVariable):
        held: jax.Array = x.read(is_detached=False)
        return held
    return reading.read(x)


def value_of(x: _Operand) -> jax.Array:
    """Return an array, or the value of a variable."""
    return read(x) if isinstance(x, VARIABLES) else x


def key_of(x: _Operand) -> object:
    """Return the key by which a recording follows an operand."""
    return x.state_cell if isinstance(x, variables.Variable) else x


def find_factors(targets: Sequence[_Operand], given: object) -> list[jax.Array]:
    """Return the gradient that each target starts with."""
    factors = [None] * len(targets) if given is None else list(nest.leaves(given))
    if len(factors) != len(targets):
        raise ValueError(
            f"Expected {len(targets)} output_gradients, one for each target, received "
            f"{len(factors)}."
        )
    return [_factor(f, value_of(t)) for f, t in zip(factors, targets, strict=True)]


def _factor(factor: object, target: jax.Array) -> jax.Array:
    """Return the gradient that a target starts with; None for ones."""
    if factor is None:
        return jnp.ones(target.shape, target.dtype)
    made = jnp.asarray(array_operators.operand(factor), target.dtype)
    if made.shape != target.shape:
        raise ValueError(
            f"Incompatible shapes: an output gradient has shape {made.shape}, its "
            f"target has {target.shape}."
        )
    return made


def differentiate(
    recording: Recording, targets: Sequence[_Operand], wanted: Sequence[_Operand]
) -> tuple[Callable[[Sequence[Any]], list[Any]], list[int]]:
    """Return the pullback of some targets, and which of the targets it is for.

    TensorFlow's gradients of complex numbers are the conjugates of JAX's.
    """
    _follow_unread(recording, targets, wanted)
    given, tangents = _find_tangents(recording, targets)
    known, sources = _find_tangents(recording, wanted)
    through = recording.make_pullback(tangents, sources)

    def pull(factors: Sequence[Any]) -> list[Any]:
        found: list[Any] = [None] * len(wanted)
        if given:
            gradients = through([_conjugate(f) for f in factors])
            for i, gradient in zip(known, gradients, strict=True):
                found[i] = None if gradient is None else _conjugate(gradient)
        return found

    return pull, given


def _find_tangents(
    recording: Recording, operands: Sequence[Any]
) -> tuple[list[int], list[Any]]:
    """Return which operands have a tangent, and the tangents.

    What has none was not followed, and has no gradient.
    """
    places, tangents = [], []
    for i, x in enumerate(operands):
        tangent = recording.find_tangent(key_of(x))
        if tangent is not None:
            places.append(i)
            tangents.append(tangent)
    return places, tangents


def _follow_unread(
    recording: Recording, targets: Sequence[_Operand], wanted: Sequence[_Operand]
) -> None:
    """Follow variables that are targets and sources, and that nobody has read.

    Such a target is the variable itself, as in ``result = v``, so its gradient is 1.
    """
    for x in targets:
        if isinstance(x, variables.Variable) and any(x is w for w in wanted):
            cell = x.state_cell
            is_new = recording.find_tangent(cell) is None
            if is_new and cell not in recording.unfollowed and jax_tapes.is_float(x):
                recording.add_key(cell, value_of(x), x)


def _conjugate(x: jax.Array) -> jax.Array:
    return jnp.conj(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x


def check_late(
    recording: Recording, wanted: Sequence[Any], found: Sequence[Any]
) -> None:
    """Raise if a source has no gradient and was used before it was watched."""
    for x, gradient in zip(wanted, found, strict=True):
        is_variable = isinstance(x, VARIABLES)
        key = key_of(x) if is_variable else id(x)
        if gradient is None and key in recording.late:
            what = f"The variable '{x.name}'" if is_variable else "A source"
            raise ValueError(
                f"{what} was used in the tape's block before tape.watch was called "
                "with it. Results computed before cannot be followed to it, and the "
                "target depends on it in no other way. Call watch first."
            )


# Variables of which rows were looked up: their gradients are `IndexedSlices`.


def find_lookups(recording: Recording, sources: Sequence[Any]) -> list[Any]:
    """Return the keys by which a recording follows rows that were looked up."""
    if not recording.lookups:
        return []
    return [key for x in sources for key, _ in _lookups_of(recording, x)]


def _lookups_of(recording: Recording, source: object) -> list[tuple[Any, Any]]:
    """Return a key and the positions for each lookup of rows of a source."""
    found = array_operators.find_own_variable(source)
    key = getattr(found, "state_cell", found)
    try:
        return recording.lookups.get(key, [])
    except TypeError:
        return []  # Tracers cannot be keys.


def join_rows(
    recording: Recording,
    sources: Sequence[Any],
    dense: Sequence[Any],
    rows: Sequence[Any],
) -> list[Any]:
    """Return one gradient for each source.

    Args:
        recording: the recording.
        sources: variables, sharded variables and arrays.
        dense: the gradients of all parts of all sources, or None.
        rows: the gradients of the rows that `find_lookups` has found, or None.

    Returns:
        An array; `IndexedSlices` if only rows of the source were used; or None.
    """
    if not recording.lookups and len(dense) == len(sources):
        return list(dense)  # No source has several parts.
    parts, given = iter(dense), iter(rows)
    made = []
    for x in sources:
        is_sharded = isinstance(x, sharded_variable.ShardedVariable)
        count = len(x.variables) if is_sharded else 1
        whole = _concatenate(x, [next(parts) for _ in range(count)])
        lookups = [(where, next(given)) for _, where in _lookups_of(recording, x)]
        sparse = [_slices(g, where, x) for where, g in lookups if g is not None]
        made.append(_add(whole, sparse))
    return made


def _concatenate(source: object, parts: list[jax.Array | None]) -> jax.Array | None:
    """Return the gradient of a variable from those of its parts."""
    if not isinstance(source, sharded_variable.ShardedVariable):
        return parts[0]
    if all(p is None for p in parts):
        return None
    pairs = zip(parts, source.variables, strict=True)
    return jnp.concatenate(
        [jnp.zeros(v.shape, v.dtype) if p is None else p for p, v in pairs]
    )


def _slices(
    gradient: jax.Array, where: ArrayLike, source: equations.HasShape
) -> IndexedSlices:
    where = jnp.asarray(where)
    values = gradient.reshape(where.size, *source.shape[1:])
    return IndexedSlices(values, where.reshape(-1), source.shape)


def _add(
    whole: jax.Array | None, sparse: list[IndexedSlices]
) -> jax.Array | IndexedSlices | None:
    """Return the sum of a gradient of a whole variable and those of some rows."""
    if not sparse:
        return whole
    joined = sparse[0] if len(sparse) == 1 else concatenate(sparse, None)
    if whole is None:
        return joined
    # Rows that a part does not have are at the position `rows.ABSENT`.
    return whole.at[joined.indices].add(joined.values, **row_positions.LEAVE_OUT)
