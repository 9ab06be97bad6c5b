"""`ShardedVariable`: one variable in parts, which may be on different servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.foundation import ambient, printable
from unisono._src.foundation.public_names import publish
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.state import assignment, conversion, reading, rows
from unisono._src.state.variables import Variable
from unisono._src.values import array_operators, row_positions
from unisono._src.values.indexed_slices import IndexedSlices

_Values = ArrayLike | array_operators.StandsForArray | Sequence[object]


class ShardedVariable(array_operators.ArrayOperators):
    """A variable whose first axis is split into parts.

    `ParameterServerStrategy` returns one for a variable that its partitioner splits. It
    acts as the whole array; a lookup of rows reads only these rows.

    Args:
        variables: the parts, in order.
        name: the name of the variable.

    Attributes:
        variables: the parts.
        name: the name of the variable.

    Raises:
        TypeError: `variables` is not a list of variables, or is empty.
        ValueError: the parts differ in type, or in an axis other than the first one.

    >>> import unisono
    >>> table = ShardedVariable(
    ...     [unisono.Variable([[1.0], [2.0]]), unisono.Variable([[3.0]])]
    ... )
    >>> table.shape, table.numpy().ravel().tolist(), float(table[-1][0])
    (TensorShape([3, 1]), [1.0, 2.0, 3.0], 3.0)
    >>> table.assign_add([[1.0], [1.0], [1.0]]).numpy().ravel().tolist()
    [2.0, 3.0, 4.0]
    """

    is_sharded_variable = True

    def __init__(
        self, variables: Sequence[Variable], name: str = "ShardedVariable"
    ) -> None:
        is_list = isinstance(variables, Sequence) and len(variables) > 0
        if not is_list or not all(isinstance(v, Variable) for v in variables):
            raise TypeError(
                "Argument `variables` should be a non-empty list of "
                f"`variables.Variable`s. Received {variables!r}."
            )
        first = variables[0]
        if any(v.dtype != first.dtype for v in variables):
            raise ValueError(
                "All elements in argument `variables` must have the same dtype. "
                f"Received dtypes: {[str(v.dtype) for v in variables]}."
            )
        if any(v.shape[1:] != first.shape[1:] or not v.ndim for v in variables):
            raise ValueError(
                "All elements in argument `variables` must have the same shapes except "
                "for the first axis. Received shapes: "
                f"{[tuple(v.shape) for v in variables]}."
            )
        self.variables = list(variables)
        self.name = printable.escape(name)
        lengths = [v.shape[0] for v in variables]
        self.offsets = [sum(lengths[:i]) for i in range(len(lengths))]

    # Properties.

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole array."""
        rows_in_all = sum(v.shape[0] for v in self.variables)
        return TensorShape((rows_in_all, *self.variables[0].shape[1:]))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.variables[0].dtype

    @property
    def trainable(self) -> bool:
        """Whether optimizers should update it."""
        return self.variables[0].trainable

    @property
    def distribute_strategy(self) -> object:
        """The strategy in whose scope the variable was created, or None."""
        return self.variables[0].distribute_strategy

    def __len__(self) -> int:
        return len(self.variables)

    def __iter__(self) -> Iterator[Variable]:  # type: ignore[override]
        return iter(self.variables)

    def __repr__(self) -> str:
        return (
            f"<ShardedVariable '{self.name}' shape={self.shape} dtype={self.dtype} in "
            f"{len(self.variables)} parts>"
        )

    # Reading.

    def value(self) -> jax.Array:
        """Returns the whole array: the parts, one after the other.

        >>> import unisono
        >>> parts = [unisono.Variable([1.0]), unisono.Variable([2.0])]
        >>> ShardedVariable(parts).value().tolist()
        [1.0, 2.0]
        """
        if ambient.current().servers.is_lookup:
            raise TypeError(
                "Converting a ShardedVariable to a tensor is not allowed in an "
                "embedding lookup: it would fetch the whole table."
            )
        return jnp.concatenate([v.value() for v in self.variables])

    def __jax_array__(self) -> jax.Array:
        return self.value()

    def read_value(self) -> jax.Array:
        """Returns the same as `value`."""
        return self.value()

    def numpy(self) -> np.ndarray:
        """Returns the whole array as a new NumPy array."""
        return np.concatenate([v.numpy() for v in self.variables])

    def _row_positions(self, indices: object) -> row_positions.Positions:
        """Returns the positions of rows, which must have one axis.

        Raises:
            InvalidArgumentError: a position is known and out of range.
            ValueError: they have another number of axes.
        """
        found = rows.as_positions(row_positions.of_rows(indices, self.shape))
        if found.ndim != 1:
            raise ValueError(
                "ShardedVariable: scatter_xxx and sparse_read only support 1-D "
                f"indices. Received indices of shape {found.shape}."
            )
        return found

    def _locate(self, where: row_positions.Positions) -> list[Any]:
        """Returns for each part the positions of rows in it; ABSENT for others."""
        found = []
        for v, offset in zip(self.variables, self.offsets, strict=True):
            inside = (where >= offset) & (where < offset + v.shape[0])
            choose: Any = np.where if isinstance(where, np.ndarray) else jnp.where
            found.append(choose(inside, where - offset, rows.ABSENT))
        return found

    def lookup(self, where: _Values) -> jax.Array:
        """Returns rows, in the order of the positions, from the parts that have them.

        Args:
            where: the positions, of any shape.
        """
        positions = rows.as_positions(row_positions.of_rows(where, self.shape))
        each = self._locate(positions)
        tape = ambient.current().tape
        with ambient.push(tape=None if tape is None else tape.outer):
            # A part that is known to have none of the rows is not asked.
            parts = list(zip(self.variables, each, strict=True))
            asked = [(v, x) for v, x in parts if not _is_absent(x)] or parts[:1]
            found = [reading.read_rows(v, x) for v, x in asked]
        # A part gives zeros for rows that it does not have, so the sum has each row
        # once.
        total = sum(found[1:], start=found[0])
        if tape is None:
            return total
        # Rows are followed as those of the whole, and as those of each part.
        pairs = zip(self.variables, each, strict=True)
        cells = [(v.state_cell, x, v) for v, x in pairs]
        return tape.follow_rows(total, [(self, positions, self), *cells])

    def sparse_read(self, indices: _Values, name: str | None = None) -> jax.Array:
        """Returns the rows at some positions, in the order of the positions.

        In TensorFlow, the rows of the first part always come first.

        Args:
            indices: the positions, with one axis.
            name: accepted, no effect.

        Raises:
            ValueError: `indices` does not have one axis.

        >>> import unisono
        >>> parts = [unisono.Variable([1.0, 2.0]), unisono.Variable([4.0])]
        >>> ShardedVariable(parts).sparse_read([2, 0, 2]).tolist()
        [4.0, 1.0, 4.0]
        """
        return self.lookup(self._row_positions(indices))

    def __getitem__(self, key: Any) -> jax.Array:
        """Returns a part of the whole, as an array."""
        _check_key(key)
        first, *rest = key if isinstance(key, tuple) else (key,)
        if isinstance(first, (int, np.integer)) and not isinstance(first, bool):
            return self.lookup(self._position(int(first)))[tuple(rest)]
        if isinstance(first, slice):
            where = np.arange(self.shape[0])[first]
            return self.lookup(where)[(slice(None), *rest)]
        return self.value()[key]

    def _position(self, index: int) -> int:
        """Returns the number of a row, which may be counted from the end."""
        count: int = self.shape[0]
        if not -count <= index < count:
            raise IndexError(
                f"ShardedVariable: slice index {index} of dimension 0 out of bounds: "
                f"it has {count} rows."
            )
        return index % count

    # Writing.

    def _assign(self, op: str, value: object) -> ShardedVariable:
        """Changes each part by its rows of a value."""
        whole = conversion.as_type(value, self.dtype, self.name)
        if whole.shape != self.shape:
            raise ValueError(
                f"Cannot assign value to variable '{self.name}': Shape mismatch. The "
                f"variable shape {self.shape}, and the assigned value shape "
                f"{whole.shape} are incompatible."
            )
        for v, offset in zip(self.variables, self.offsets, strict=True):
            part = whole[offset : offset + v.shape[0]]
            assignment.assign(v, op, part, False)
        return self

    def assign(
        self, value: _Values, use_locking: object = None, name: object = None
    ) -> ShardedVariable:
        """Replaces the value, and returns the variable itself."""
        return self._assign(assignment.REPLACE, value)

    def assign_add(
        self, delta: _Values, use_locking: object = None, name: object = None
    ) -> ShardedVariable:
        """Adds to the value, and returns the variable itself."""
        return self._assign(assignment.ADD, delta)

    def assign_sub(
        self, delta: _Values, use_locking: object = None, name: object = None
    ) -> ShardedVariable:
        """Subtracts from the value, and returns the variable itself."""
        return self._assign(assignment.SUB, delta)

    def split_slices(self, sparse: IndexedSlices) -> list[IndexedSlices]:
        """Returns `sparse` for each part, where rows of other parts are ignored.

        Raises:
            TypeError: `sparse` is not an `IndexedSlices`.
            ValueError: its indices do not have one axis.
        """
        if not isinstance(sparse, IndexedSlices):
            raise TypeError(
                "Argument `sparse_delta` must be a `tf.IndexedSlices`. Received arg: "
                f"{sparse!r}."
            )
        each = self._locate(self._row_positions(sparse.indices))
        pairs = zip(self.variables, each, strict=True)
        return [IndexedSlices(sparse.values, x, v.shape) for v, x in pairs]

    def _scatter(self, method: str, sparse: IndexedSlices) -> ShardedVariable:
        parts = zip(self.variables, self.split_slices(sparse), strict=True)
        for v, own in parts:
            getattr(v, method)(own)
        return self

    def batch_scatter_update(
        self,
        sparse_delta: IndexedSlices,
        use_locking: object = None,
        name: object = None,
    ) -> ShardedVariable:
        """Replaces some rows, as `scatter_update` does."""
        return self._scatter("scatter_update", sparse_delta)


def _scatter_method(kind: str, verb: str) -> Callable[..., ShardedVariable]:
    def method(
        self: ShardedVariable,
        sparse_delta: IndexedSlices,
        use_locking: object = None,
        name: object = None,
    ) -> ShardedVariable:
        return self._scatter(f"scatter_{kind}", sparse_delta)

    method.__name__ = f"scatter_{kind}"
    method.__qualname__ = f"ShardedVariable.scatter_{kind}"
    method.__doc__ = f"{verb} some rows, and returns the variable itself."
    return method


for _kind, _verb in {
    "add": "Adds to",
    "div": "Divides",
    "max": "Takes the maximum with",
    "min": "Takes the minimum with",
    "mul": "Multiplies",
    "sub": "Subtracts from",
    "update": "Replaces",
}.items():
    setattr(ShardedVariable, f"scatter_{_kind}", _scatter_method(_kind, _verb))


def _is_absent(where: row_positions.Positions) -> bool:
    """Whether no row is wanted, as far as that is known."""
    return isinstance(where, np.ndarray) and bool((where == rows.ABSENT).all())


def _check_key(key: Any) -> None:
    """Raises `TypeError` if a key holds an array, unless the array is a mask."""
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, slice):
            ends = (part.start, part.stop, part.step)
            if any(isinstance(end, jax.Array) for end in ends):
                raise TypeError(
                    "ShardedVariable: using Tensor in slice_spec is not allowed; "
                    f"received {part!r}. Write Python numbers."
                )
        is_mask = str(getattr(part, "dtype", "")) == "bool"
        if isinstance(part, (jax.Array, np.ndarray)) and not is_mask:
            raise TypeError(
                "ShardedVariable: using Tensor for indexing is not allowed; received "
                f"{part!r}. Use sparse_read, or unisono.nn.embedding_lookup."
            )


def parts(sources: Sequence[Any]) -> list[Any]:
    """Returns variables with the parts of each sharded one in its place."""
    found: list[Any] = []
    for x in sources:
        found += x.variables if isinstance(x, ShardedVariable) else [x]
    return found


# JAX sees it as its value, as it sees any other variable.
jax.tree_util.register_pytree_node(
    ShardedVariable, lambda v: ((v.value(),), None), lambda _, children: children[0]
)

publish("unisono.distribute", ShardedVariable)
