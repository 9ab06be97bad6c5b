"""Variables in parts: their gradients, and whether parts are updated like the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.state import sharded_variable
from unisono._src.state.variables import Variable
from unisono._src.values import row_positions
from unisono._src.values.array_operators import StandsForArray, find_own_variable
from unisono._src.values.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    import optax

# The gradient of a variable: an array, or rows of one.
Gradient: TypeAlias = ArrayLike | StandsForArray | IndexedSlices

# Rows of a large variable that are tried. A transformation that treats large matrices
# in another way than small ones, such as Adafactor, still sees a large one.
_ROWS = 1024


def split_gradients(
    pairs: Iterable[tuple[Gradient | None, object]],
) -> Iterator[tuple[Gradient | None, Variable]]:
    """Yields gradients and variables, with the parts of those that are in parts."""
    for gradient, given in pairs:
        v = find_own_variable(given)
        if not isinstance(v, sharded_variable.ShardedVariable):
            if isinstance(gradient, IndexedSlices):
                where = row_positions.of_rows(gradient.indices, v.shape)
                gradient = IndexedSlices(gradient.values, where, gradient.dense_shape)
            yield gradient, v
        elif gradient is None:
            yield from ((None, part) for part in v.variables)
        elif isinstance(gradient, IndexedSlices):
            yield from zip(v.split_slices(gradient), v.variables, strict=True)
        else:
            pairs_of = zip(v.offsets, v.variables, strict=True)
            rows = [slice(o, o + p.shape[0]) for o, p in pairs_of]
            dense = jnp.asarray(gradient)
            if dense.shape != v.shape:
                raise ValueError(
                    f"The gradient of {v.name} has shape {dense.shape}, the variable "
                    f"has {v.shape}."
                )
            yield from zip((dense[r] for r in rows), v.variables, strict=True)


def check(
    tx: optax.GradientTransformation,
    variables: Sequence[Variable],
    groups: Sequence[int],
) -> None:
    """Raises if a transformation treats the parts of a variable as variables.

    Two steps of the transformation are computed for whole variables and for their
    parts, with random numbers and few rows, and the results are compared. A norm of all
    gradients, for example, is the same either way; the norm of each variable is not.

    Args:
        tx: the transformation.
        variables: all parts of all variables.
        groups: the number of parts of each variable.

    Raises:
        NotImplementedError: the results differ.
    """
    if all(n == 1 for n in groups):
        return
    given, wholes, cuts, name = iter(variables), [], [], ""
    for count in groups:
        parts = [next(given) for _ in range(count)]
        name = name or (parts[0].name.partition("/part_")[0] if count > 1 else "")
        rows = [_count_rows(v, count) for v in parts]
        shape = (sum(rows), *parts[0].shape[1:]) if count > 1 else parts[0].shape
        wholes.append((shape, parts[0].dtype))
        cuts.append([sum(rows[:i]) for i in range(1, count)] if count > 1 else None)
    same = jax.jit(lambda: _is_same(tx, wholes, cuts))()
    if not bool(same):
        raise NotImplementedError(
            f"The optimizer's transformation treats the parts of '{name}' as variables "
            "of their own: an update of the parts differs from one of the whole. Norms "
            "of single variables (LAMB, LARS), factored moments (Adafactor) and noise "
            "do. Make the variable outside the partitioner's reach, with "
            "variable_partitioner=None or a larger shard size, or use a transformation "
            "that goes element by element or by a norm of all gradients."
        )


def _count_rows(variable: Variable, count: int) -> int:
    """Returns how many rows of a part are tried."""
    if count == 1:
        return 0
    rows: int = variable.shape[0]
    return max(1, min(rows, _ROWS // count))


def _is_same(
    tx: optax.GradientTransformation,
    wholes: Sequence[tuple[Sequence[int], np.dtype]],
    cuts: Sequence[list[int] | None],
) -> jax.Array:
    """Whether a step gives the same numbers for wholes and for parts."""
    rng = np.random.default_rng(0)

    def draw() -> list[jax.Array]:
        return [jnp.asarray(rng.normal(size=s), d) for s, d in wholes]

    def cut(values: Sequence[jax.Array]) -> list[jax.Array | list[jax.Array]]:
        pairs = zip(values, cuts, strict=True)
        return [x if c is None else jnp.split(x, c) for x, c in pairs]

    params = draw()
    state, by_parts, close = tx.init(params), tx.init(cut(params)), []
    # The second step shows what the first one has left in the slots.
    for _ in range(2):
        gradients = draw()
        first, state = tx.update(gradients, state, params)
        found, by_parts = tx.update(cut(gradients), by_parts, cut(params))
        pairs = zip(jax.tree.leaves(cut(first)), jax.tree.leaves(found), strict=True)
        # Loosely: a norm of parts adds up in another order, while a transformation that
        # treats parts as variables is off by far more.
        close += [jnp.allclose(x, y, rtol=1e-3, atol=1e-6) for x, y in pairs]
    return jnp.all(jnp.stack(close))
