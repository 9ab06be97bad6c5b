"""`IndexedSlices`: the rows of a larger array that a sparse gradient touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import wide_numbers
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.values import array_operators, row_positions


@jax.tree_util.register_pytree_node_class
class IndexedSlices:
    """Rows `values[i]` that belong at positions `indices[i]` of a larger array.

    Args:
        values: the rows, stacked along the first axis.
        indices: the position of each row; a position may occur more than once.
        dense_shape: the shape of the larger array, if it is known: integers, or an
            array of integers. An array that a compiled function computes is known only
            when its program runs; pass integers if the function calls `to_dense`.
        name: accepted, no effect.

    >>> values = jnp.array([[1.0], [2.0], [4.0]])
    >>> rows = IndexedSlices(values, jnp.array([2, 0, 2]), dense_shape=(3, 1))
    >>> rows.to_dense().tolist()
    [[2.0], [0.0], [5.0]]
    >>> rows.shape, rows.dtype.name
    (TensorShape([3, 1]), 'float32')
    """

    def __init__(
        self,
        values: Any,
        indices: Any,
        dense_shape: Sequence[int] | jax.Array | np.ndarray | None = None,
        name: str | None = None,
    ) -> None:
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape
        self.name = name
        self._is_shape_child = self._is_traced_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of the rows."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    @property
    def shape(self) -> TensorShape:
        """The shape of the larger array; its rank is unknown if it is not known."""
        if self.dense_shape is None or self._is_traced_shape:
            return TensorShape(None)
        # By NumPy: iterating over an array of JAX's would be traced in a function.
        return TensorShape(np.asarray(self.dense_shape))

    @property
    def _is_traced_shape(self) -> bool:
        return isinstance(self.dense_shape, jax.core.Tracer)

    def to_dense(self) -> jax.Array:
        """Returns the larger array, with zeros where there is no row.

        Rows with the same index are added. If a program computes a position that is out
        of range, its row is ignored.

        Raises:
            InvalidArgumentError: a known position is out of range.
            ValueError: `dense_shape` is None, or is not known yet.
        """
        if self._is_traced_shape:
            raise ValueError(
                "The dense_shape of these IndexedSlices is an array that a compiled "
                "function makes, so it is only known when its program runs. Give "
                "dense_shape as integers, such as x.shape, to make a dense array there."
            )
        if self.dense_shape is None:
            raise ValueError(
                "These IndexedSlices have no dense_shape, so they cannot become a "
                "dense array; give dense_shape when you make them."
            )
        values = wide_numbers.as_jax(self.values, None, "the rows of IndexedSlices")
        where = row_positions.of_rows(self.indices, self.shape)
        zeros = jnp.zeros(self.shape, values.dtype)
        return zeros.at[where].add(values, **row_positions.LEAVE_OUT)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns the arrays as JAX's children, and the dense shape as static data.

        A traced dense shape is one more child. It stays a child even if JAX puts
        something else in its place, such as one row for each replica.
        """
        if self._is_shape_child:
            return (self.values, self.indices, self.dense_shape), None
        known = self.shape.dims
        return (self.values, self.indices), None if known is None else tuple(known)

    @classmethod
    def tree_unflatten(
        cls, shape: tuple[int, ...] | None, children: Sequence[Any]
    ) -> IndexedSlices:
        """Rebuilds the slices from the result of `tree_flatten`."""
        values, indices, *traced = children
        made = cls(values, indices, traced[0] if traced else shape)
        made._is_shape_child = bool(traced)
        return made

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(indices={self.indices}, values={self.values}, "
            f"dense_shape={self.dense_shape})"
        )


def concatenate(parts: Sequence[IndexedSlices], scale: float | None) -> IndexedSlices:
    """Returns all rows of all parts in order, divided by `scale` if it is given."""
    values = jnp.concatenate([jnp.asarray(p.values) for p in parts])
    if scale is not None:
        values = values / scale
    indices = jnp.concatenate([jnp.asarray(p.indices) for p in parts])
    return IndexedSlices(values, indices, parts[0].dense_shape)


def is_tree(x: object) -> bool:
    """Whether `x` is a JAX pytree, not a single array or `IndexedSlices`."""
    known = (jax.Array, IndexedSlices, array_operators.StandsForArray)
    return not isinstance(x, known) and not jax.tree_util.all_leaves([x])


def map_tree(fn: Callable[..., Any], *trees: object) -> Any:
    """Applies `fn` to the arrays and `IndexedSlices` of pytrees of one structure."""
    return jax.tree.map(fn, *trees, is_leaf=lambda x: isinstance(x, IndexedSlices))
