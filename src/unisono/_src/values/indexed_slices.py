"""`IndexedSlices`: the rows of a larger array that a sparse gradient touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.values import array_operators


@jax.tree_util.register_pytree_node_class
class IndexedSlices:
    """Rows `values[i]` at positions `indices[i]` of an array of `dense_shape`.

    >>> IndexedSlices(jnp.ones((1, 2)), jnp.array([3]), (5, 2)).to_dense().shape
    (5, 2)
    """

    def __init__(
        self,
        values: Any,
        indices: Any,
        dense_shape: Sequence[int] | None = None,
        name: str | None = None,
    ) -> None:
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape
        self.name = name

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the rows."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The dense shape, or None when it is not known."""
        return None if self.dense_shape is None else tuple(map(int, self.dense_shape))

    def to_dense(self) -> jax.Array:
        """The full array; rows with equal indices are added."""
        if self.dense_shape is None:
            raise ValueError(
                "These IndexedSlices have no dense_shape, so they cannot become a "
                "dense array; give dense_shape when you make them."
            )
        zeros = jnp.zeros(self.shape, self.values.dtype)
        return zeros.at[self.indices].add(self.values)

    def tree_flatten(self) -> tuple[tuple[Any, Any], Any]:
        """Arrays are children; the dense shape is static."""
        return (self.values, self.indices), self.shape

    @classmethod
    def tree_unflatten(
        cls, shape: tuple[int, ...] | None, children: Sequence[Any]
    ) -> IndexedSlices:
        """Inverse of `tree_flatten`."""
        return cls(children[0], children[1], shape)

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(indices={self.indices}, values={self.values}, "
            f"dense_shape={self.dense_shape})"
        )


def concatenate(parts: Sequence[IndexedSlices], scale: float | None) -> IndexedSlices:
    """All rows of all parts in order; values divided by `scale` if it is given."""
    values = jnp.concatenate([jnp.asarray(p.values) for p in parts])
    if scale is not None:
        values = values / scale
    indices = jnp.concatenate([jnp.asarray(p.indices) for p in parts])
    return IndexedSlices(values, indices, parts[0].dense_shape)


def is_tree(x: Any) -> bool:
    """Whether `x` is a structure of arrays that only JAX knows, such as a class."""
    known = (jax.Array, IndexedSlices, array_operators.StandsForArray)
    return not isinstance(x, known) and not jax.tree_util.all_leaves([x])


def map_tree(fn: Callable[..., Any], *trees: Any) -> Any:
    """Apply `fn` to the arrays and slices of structures that JAX knows."""
    return jax.tree.map(fn, *trees, is_leaf=lambda x: isinstance(x, IndexedSlices))


publish("unisono", IndexedSlices)
