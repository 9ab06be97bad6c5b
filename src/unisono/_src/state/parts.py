"""The methods of a variable that read or change a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.typing import ArrayLike

from unisono._src.state import positions, scatter
from unisono._src.values.array_operators import ArrayOperators, StandsForArray
from unisono._src.values.indexed_slices import IndexedSlices

_Values = ArrayLike | StandsForArray | Sequence[object]


class VariableParts(ArrayOperators):
    """Reads and changes rows, elements and slices of a variable; abstract."""

    def __getitem__(self, key: Any) -> positions.VariableSlice:
        return positions.take_slice(self, key)

    def sparse_read(self, indices: _Values, name: str | None = None) -> jax.Array:
        """Returns the rows at some positions.

        Args:
            indices: the positions along the first axis.
            name: for TensorFlow's signature; it has no effect.

        Raises:
            InvalidArgumentError: a position is known and out of range. In a compiled
                step such rows are zeros.

        >>> import unisono
        >>> unisono.Variable([1.0, 2.0, 4.0]).sparse_read([2, 0, 2]).tolist()
        [4.0, 1.0, 4.0]
        """
        return positions.sparse_read(self, indices)

    def gather_nd(self, indices: _Values, name: str | None = None) -> jax.Array:
        """Returns the elements, or slices, at some positions.

        Args:
            indices: the positions; the last axis has an index for each of the first
                axes of the variable.
            name: for TensorFlow's signature; it has no effect.

        Raises:
            InvalidArgumentError: as for `sparse_read`, or the last axis of `indices` is
                longer than the variable has axes.

        >>> import unisono
        >>> unisono.Variable([[1.0, 2.0], [3.0, 4.0]]).gather_nd(
        ...     [[0, 1], [1, 0]]
        ... ).tolist()
        [2.0, 3.0]
        """
        return positions.gather_nd(self, indices)

    def scatter_add(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Adds to some rows; rows with the same index are all added.

        Args:
            sparse_delta: the rows and their positions.
            **_: TensorFlow's `use_locking` and `name`, which have no effect.

        Returns:
            The new value as the running context sees it.

        Raises:
            TypeError: `sparse_delta` is no `IndexedSlices`.
            ValueError: the rows are of a kind that the variable cannot hold.
            NotImplementedError: the variable is sync-on-read.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_add(rows).tolist()
        [4.0, 2.0, 6.0]
        """
        return scatter.scatter(self, "add", sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Subtracts from some rows.

        Takes, returns and raises the same as `scatter_add`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_sub(rows).tolist()
        [-2.0, 2.0, 2.0]
        """
        return scatter.scatter(self, "sub", sparse_delta)

    def scatter_update(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Replaces some rows.

        Takes and returns the same as `scatter_add`.

        Raises:
            NotImplementedError: the variable is sync-on-read, or its aggregation is SUM
                or MEAN.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_update(rows).tolist()
        [3.0, 2.0, 2.0]
        """
        return scatter.scatter(self, "update", sparse_delta)

    def scatter_min(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Replaces some rows by the minimum of the old and the given one.

        Takes, returns and raises the same as `scatter_update`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_min(rows).tolist()
        [1.0, 2.0, 2.0]
        """
        return scatter.scatter(self, "min", sparse_delta)

    def scatter_max(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Replaces some rows by the maximum of the old and the given one.

        Takes, returns and raises the same as `scatter_update`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_max(rows).tolist()
        [3.0, 2.0, 4.0]
        """
        return scatter.scatter(self, "max", sparse_delta)

    def scatter_mul(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Multiplies some rows.

        Takes, returns and raises the same as `scatter_add`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_mul(rows).tolist()
        [3.0, 2.0, 8.0]
        """
        return scatter.scatter(self, "mul", sparse_delta)

    def scatter_div(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Divides some rows; integers are rounded towards zero.

        Takes, returns and raises the same as `scatter_add`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_div(rows).tolist()
        [0.3333333432674408, 2.0, 2.0]
        """
        return scatter.scatter(self, "div", sparse_delta)

    def scatter_nd_add(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Adds to elements, or slices, at some positions.

        All updates of a position are applied. Distributed variables follow the rules
        of `scatter_add` and its like.

        Args:
            indices: the positions; the last axis has an index for each of the first
                axes of the variable.
            updates: an element or slice for each position.
            name: for TensorFlow's signature; it has no effect.

        Returns:
            The new value as the running context sees it.

        Raises:
            InvalidArgumentError: the shapes do not fit each other, or a position is
                known and out of range. In a compiled step such updates are left out.
            NotImplementedError: the variable is sync-on-read, or its aggregation does
                not allow it.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_add([[0], [2]], [2.0, 2.0]).tolist()
        [3.0, 2.0, 6.0]
        """
        return positions.scatter_nd(self, "add", indices, updates)

    def scatter_nd_sub(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Subtracts from elements, or slices, at some positions.

        Takes, returns and raises the same as `scatter_nd_add`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_sub([[0], [2]], [2.0, 2.0]).tolist()
        [-1.0, 2.0, 2.0]
        """
        return positions.scatter_nd(self, "sub", indices, updates)

    def scatter_nd_update(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Replaces elements, or slices, at some positions.

        Takes, returns and raises the same as `scatter_nd_add`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_update([[0], [2]], [2.0, 2.0]).tolist()
        [2.0, 2.0, 2.0]
        """
        return positions.scatter_nd(self, "update", indices, updates)

    def scatter_nd_max(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Replaces elements by the maximum of the old and the given one.

        Takes, returns and raises the same as `scatter_nd_add`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_max([[0], [2]], [2.0, 2.0]).tolist()
        [2.0, 2.0, 4.0]
        """
        return positions.scatter_nd(self, "max", indices, updates)

    def scatter_nd_min(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Replaces elements by the minimum of the old and the given one.

        Takes, returns and raises the same as `scatter_nd_add`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_min([[0], [2]], [2.0, 2.0]).tolist()
        [1.0, 2.0, 2.0]
        """
        return positions.scatter_nd(self, "min", indices, updates)
