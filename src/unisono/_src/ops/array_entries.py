"""The entries of a `TensorArray`, as a list or as one array."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import errors
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.ops import tensors


@final
@dataclasses.dataclass
# Either `rows` or `block` is in use. Eager code has rows, which may have different
# shapes. They become a block at the first write at a position that a program computes,
# or when a loop carries them; a block never becomes rows again.
class Entries:
    """Arrays of one type by position.

    Attributes:
        dtype: the type of the elements.
        grows: whether a write behind the end makes it longer.
        clears: whether an entry can be read once only, eagerly.
        infers: whether all entries must have the shape of the first one.
        shape: the shape of an entry, as far as it is known.
        rows: the entries, None for those that are not written. None if they are in
            `block`.
        block: all entries in one array, into which a program can write at a position
            that is not known before it runs; or None.
        read: the positions that were read and are cleared.
    """

    dtype: Any
    grows: bool
    clears: bool
    infers: bool
    shape: TensorShape
    rows: list[Any] | None
    block: Any = None
    read: set[int] = dataclasses.field(default_factory=set)

    def count(self) -> int:
        """Returns the number of entries."""
        return len(self.block if self.rows is None else self.rows)

    def copy(self) -> Entries:
        """Returns entries that can be changed without changing these."""
        rows = None if self.rows is None else list(self.rows)
        return dataclasses.replace(self, rows=rows, read=set(self.read))

    def convert(self, value: Any) -> jax.Array:
        """Returns a value as an array of the type of the elements."""
        found = tensors.unwrap(value)
        if isinstance(found, jax.Array) and found.dtype != self.dtype:
            raise errors.InvalidArgumentError(
                f"TensorArray dtype is {self.dtype} but Op is trying to write dtype "
                f"{found.dtype}. Convert the value first, as in "
                f"unisono.cast(x, unisono.{self.dtype})."
            )
        return tensors.tensor(found, self.dtype)

    def take_shape(self, shape: tuple[int, ...]) -> None:
        """Takes over the shape of a new entry, or raises if it does not fit."""
        if not self.shape.is_compatible_with(shape):
            raise ValueError(
                f"Incompatible shape for value ({shape}), expected ({self.shape})"
            )
        if self.infers:
            self.shape = self.shape.merge_with(shape)

    def check_range(self, place: int, verb: str) -> None:
        """Raises `OutOfRangeError` unless a position is there."""
        if place < 0:
            raise errors.OutOfRangeError(
                f"Tried to {verb} the negative index {place}, which is not allowed."
            )
        if place >= self.count():
            fixed = "array is not resizeable and" if verb == "write to" else "array"
            raise errors.OutOfRangeError(
                f"Tried to {verb} index {place} but {fixed} size is: {self.count()}"
            )

    def put(self, place: int, value: Any) -> None:
        """Stores an entry at a position that is known."""
        entry = self.convert(value)
        if self.grows and place >= self.count():
            self._grow(place + 1)
        self.check_range(place, "write to")
        self.take_shape(entry.shape)
        if self.rows is None:
            self.block = self.block.at[place].set(entry)
            return
        self.rows[place] = entry
        self.read.discard(place)

    def put_traced(self, places: jax.Array, values: jax.Array) -> None:
        """Stores an entry, or several, at positions that a program computes."""
        if self.grows:
            raise ValueError(
                "In a compiled function a TensorArray cannot grow at a position that "
                "the program computes, because arrays of a program have fixed sizes. "
                "Give it size=, the largest number of entries, and leave out "
                "dynamic_size=True; or write at Python's numbers, as in "
                "`for i in range(n)`."
            )
        # One position is a scalar, several are a vector.
        shape = values.shape[places.ndim :]
        self.take_shape(shape)
        block = self.to_block(shape)
        self.rows = None
        self.block = block.at[_move_outside(places, len(block))].set(
            values, mode="drop"
        )

    def replace(self, rows: list[Any] | None, block: Any) -> None:
        """Stores other entries in place of all."""
        self.rows, self.block, self.read = rows, block, set()

    def _grow(self, size: int) -> None:
        if self.rows is not None:
            self.rows += [None] * (size - len(self.rows))
        else:
            more = (size - len(self.block), *self.block.shape[1:])
            self.block = jnp.concatenate([self.block, jnp.zeros(more, self.dtype)])

    def get(self, place: int) -> jax.Array:
        """Returns the entry at a position that is known and there."""
        found = self.block[place] if self.rows is None else self.rows[place]
        array: jax.Array = self._zeros(()) if found is None else found
        return array

    def get_traced(self, places: jax.Array) -> jax.Array:
        """Returns the entry, or several, at positions that a program computes."""
        block = self.stack(range(self.count()))
        return block.at[_move_outside(places, len(block))].get(
            mode="fill", fill_value=0
        )

    def _zeros(self, leading: tuple[int, ...]) -> jax.Array:
        if not self.shape.is_fully_defined():
            raise ValueError(
                "An entry of a TensorArray that is not written yet reads as zeros, and "
                "its shape is not known. Write it first, or give element_shape=."
            )
        return jnp.zeros((*leading, *self.shape.with_rank_at_least(0)), self.dtype)

    def stack(self, places: Iterable[int]) -> jax.Array:
        """Returns the entries at known positions in one array."""
        if self.rows is None:
            found: jax.Array = self.block
            chosen = list(places)
            is_all = chosen == list(range(len(found)))
            return found if is_all else found[jnp.asarray(chosen, jnp.int32)]
        rows = [self.get(i) for i in places]
        if not rows:
            is_known = self.shape.is_fully_defined()
            return self._zeros((0,)) if is_known else jnp.zeros((0,), self.dtype)
        if len({x.shape for x in rows}) > 1:
            shapes = ", ".join(str(list(x.shape)) for x in rows[:4])
            raise errors.InvalidArgumentError(
                f"Shapes of all inputs must match: entries have the shapes {shapes}. "
                "concat() puts entries of different lengths together."
            )
        return jnp.stack(rows)

    def to_block(self, shape: tuple[int, ...]) -> Any:
        """Returns all entries in one array; `shape` is that of each."""
        if self.rows is None:
            return self.block
        if all(x is None for x in self.rows):
            return jnp.zeros((len(self.rows), *shape), self.dtype)
        known = dataclasses.replace(self, shape=TensorShape(shape))
        return known.stack(range(len(self.rows)))

    def settle(self) -> Entries:
        """Returns the entries in one array, if they all have one known shape."""
        if not self.rows:  # It is one array already, or has no entries.
            return self
        # A row that the body writes would change the structure that JAX compares from
        # round to round; in one array nothing changes but numbers.
        shapes = {x.shape for x in self.rows if x is not None}
        if not shapes and self.shape.is_fully_defined():
            shapes = {tuple(self.shape)}
        if len(shapes) != 1:
            return self
        return dataclasses.replace(self, rows=None, block=self.to_block(*shapes))

    def fill_like(self, other: Entries) -> Entries:
        """Returns the entries, of which none is written, in the form of others."""
        if other.rows is not None:
            return self
        shape = other.block.shape[1:]
        return dataclasses.replace(
            self, shape=other.shape, rows=None, block=self.to_block(shape)
        )

    def flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns the arrays, and all else."""
        rows = None if self.rows is None else tuple(self.rows)
        # JAX compares this between the rounds of a loop. `read` is not part of it:
        # whether an entry can be read twice is an eager question.
        told = (self.dtype, self.grows, self.clears, self.infers, self.shape)
        return (rows, self.block), told


def unflatten(told: Any, children: Any) -> Entries:
    """Returns the entries of what `Entries.flatten` returned."""
    rows, block = children
    dtype, grows, clears, infers, shape = told
    kept = None if rows is None else list(rows)
    return Entries(dtype, grows, clears, infers, shape, kept, block)


def _move_outside(place: jax.Array, size: int) -> jax.Array:
    """Returns positions in which a negative one is behind the end, not from the end."""
    return jnp.where(place < 0, size, place)
