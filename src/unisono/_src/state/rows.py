"""Reads rows of variables; of one on a parameter server only these rows travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching

from unisono._src.foundation import jax_internals, wide_numbers
from unisono._src.values import jax_tapes, row_positions

if TYPE_CHECKING:
    from unisono._src.state.storage import Cell

# Stands for a row that is not wanted.
ABSENT = row_positions.ABSENT

# Stands for the rows of a variable in a program being traced. Whoever runs the program
# asks the server for them when it knows the positions (see `RemoteState.stage`).
lookup_p = jax_internals.Primitive("server_lookup")


def _shape(rows: Any, *, cell: Cell) -> Any:
    return jax.core.ShapedArray((*rows.shape, *cell.shape[1:]), cell.dtype)


def _read(rows: Any, *, cell: Cell) -> Any:
    home: Any = cell.home
    return home.group.read_rows(cell, rows)


def _batch(args: Any, axes: Any, *, cell: Cell) -> Any:
    (rows,), (axis,) = args, axes
    return lookup_p.bind(jnp.moveaxis(rows, axis, 0), cell=cell), 0


def _differentiate(primals: Any, tangents: Any, *, cell: Cell) -> Any:
    # Positions have no gradient. That of the rows is followed by a tape, by itself.
    found = lookup_p.bind(*primals, cell=cell)
    return found, ad.Zero(jax.typeof(found).to_tangent_aval())


# There is no rule to lower it: a program that has it is cut before it is compiled.
# Outside programs `_read` asks the server at once.
lookup_p.def_abstract_eval(_shape)
lookup_p.def_impl(_read)
batching.primitive_batchers[lookup_p] = _batch
ad.primitive_jvps[lookup_p] = _differentiate


def take(whole: jax.Array, rows: row_positions.Positions) -> jax.Array:
    """Returns rows of an array; zeros for positions outside it."""
    # As TensorFlow on accelerators.
    return whole.at[rows].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def as_positions(rows: object) -> row_positions.Positions:
    """Returns positions without a gradient, as a NumPy array if they are known."""
    found = jax_tapes.lower(rows)
    if isinstance(found, jax.core.Tracer):
        return jnp.asarray(found, jnp.int32)
    known = np.asarray(found)
    return wide_numbers.check(known, "positions", np.int32).astype(np.int32)
