"""The entries of a `TensorArray`, as a list or as one array."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import host_inputs
from unisono._src.foundation import ambient, errors
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.foundation.tensorflow_names import host_bodies
from unisono._src.ops import tensors
from unisono._src.ops.host import working_arrays
from unisono._src.state import branch_frame, frames
from unisono._src.values import jax_traces


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
        is_open: whether a loop is writing entries that grow, so that their number is
            not known yet.
        added: what a turn of a loop has written, as positions and values, in the place
            of all entries; None elsewhere.
        origin: by what a loop knows entries whose additions are noted.
    """

    dtype: Any
    grows: bool
    clears: bool
    infers: bool
    shape: TensorShape
    rows: list[Any] | None
    block: Any = None
    read: set[int] = dataclasses.field(default_factory=set)
    is_open: bool = False
    added: list[tuple[Any, Any]] | None = None
    origin: int = 0

    def count(self) -> int:
        """Returns the number of entries.

        Raises:
            NeedsHost: a loop is writing them.
            ValueError: so it is, in a program that is not a function's.
        """
        if self.is_open:
            raise _leave_program()
        return len(self.block if self.rows is None else self.rows)

    def copy(self) -> Entries:
        """Returns entries that can be changed without changing these."""
        rows = None if self.rows is None else list(self.rows)
        added = None if self.added is None else list(self.added)
        return dataclasses.replace(self, rows=rows, read=set(self.read), added=added)

    def convert(self, value: Any) -> Any:
        """Returns a value as an array of the type of the elements."""
        found = tensors.unwrap(value)
        if is_on_host() and host_bodies.are_of_host((found,)):
            return working_arrays.present(working_arrays.tensor(found, self.dtype))
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
        if self.added is not None:
            self.put_traced(jnp.asarray(place, jnp.int32), entry)
            return
        if self.grows and not self.is_open and place >= self.count():
            self.grow(place + 1)
        if not self.is_open:
            self.check_range(place, "write to")
        self.take_shape(entry.shape)
        if self.rows is None:
            self.block = self.block.at[place].set(entry)
            return
        self.rows[place] = entry
        self.read.discard(place)

    def put_traced(self, places: jax.Array, values: jax.Array) -> None:
        """Stores an entry, or several, at positions that a program computes."""
        if self.added is not None:
            if places.ndim or _is_in_inner_body():
                raise _leave_program()
            self.take_shape(values.shape)
            self.added.append((places, values))
            return
        if self.grows and not self.is_open:
            raise _leave_program()
        # One position is a scalar, several are a vector.
        shape = values.shape[places.ndim :]
        self.take_shape(shape)
        block = self.to_block(shape)
        self.rows = None
        self.block = block.at[_move_outside(places, len(block))].set(
            values, mode="drop"
        )

    # Entries that a loop adds.

    def record(self, origin: int) -> Entries:
        """Returns entries that only note what is added to them."""
        made = dataclasses.replace(self, rows=None, block=None, read=set(), added=[])
        made.is_open, made.origin = True, origin
        return made

    def open(self, size: int, shape: tuple[int, ...]) -> Entries:
        """Returns the entries in an array for as many as a loop will write.

        Args:
            size: how many entries there are after the loop.
            shape: that of an entry.
        """
        made = dataclasses.replace(self.copy(), rows=None, block=self.to_block(shape))
        made.grow(size)
        made.take_shape(shape)
        made.is_open = True
        return made

    def close(self) -> Entries:
        """Returns the entries after the loop for which they were opened."""
        return dataclasses.replace(self, is_open=False)

    def add(self, noted: Entries) -> Entries:
        """Returns the entries with those that others have noted."""
        made = self.copy()
        for place, value in noted.added or ():
            made.put(int(place), value)
        return made

    def replace(self, rows: list[Any] | None, block: Any) -> None:
        """Stores other entries in place of all."""
        if self.is_open:
            raise _leave_program()
        self.rows, self.block, self.read = rows, block, set()

    def grow(self, size: int) -> None:
        """Makes the entries as many as `size`, if they are fewer."""
        if self.rows is not None:
            self.rows += [None] * (size - len(self.rows))
        elif size > len(self.block):
            more = (size - len(self.block), *self.block.shape[1:])
            self.block = jnp.concatenate([self.block, jnp.zeros(more, self.dtype)])

    def get(self, place: int) -> jax.Array:
        """Returns the entry at a position that is known and there."""
        if self.added is not None:
            raise _leave_program()
        found = self.block[place] if self.rows is None else self.rows[place]
        array: jax.Array = self._zeros(()) if found is None else found
        return array

    def get_traced(self, places: jax.Array) -> jax.Array:
        """Returns the entry, or several, at positions that a program computes."""
        if self.added is not None:
            raise _leave_program()
        is_block = self.rows is None
        block = self.block if is_block else self.stack(range(self.count()))
        inside = _move_outside(places, len(block))
        found: jax.Array = block.at[inside].get(mode="fill", fill_value=0)
        return found

    def _zeros(self, leading: tuple[int, ...], known: TensorShape | None = None) -> Any:
        entry = self.shape if known is None else known
        if not entry.is_fully_defined():
            raise ValueError(
                "An entry of a TensorArray that is not written yet reads as zeros, and "
                "its shape is not known. Write it first, or give element_shape=."
            )
        shape = (*leading, *entry.with_rank_at_least(0))
        if is_on_host():
            return working_arrays.present(np.zeros(shape, self.dtype))
        return jnp.zeros(shape, self.dtype)

    def stack(self, places: Iterable[int]) -> Any:
        """Returns the entries at known positions in one array."""
        if self.rows is None:
            found: jax.Array = self.block
            chosen = list(places)
            is_all = chosen == list(range(len(found)))
            return found if is_all else found[jnp.asarray(chosen, jnp.int32)]
        rows = [self.get(i) for i in places]
        if not rows:
            is_known = self.shape.is_fully_defined()
            return self._zeros((0,), self.shape if is_known else TensorShape([]))
        if len({x.shape for x in rows}) > 1:
            shapes = ", ".join(str(list(x.shape)) for x in rows[:4])
            raise errors.InvalidArgumentError(
                f"Shapes of all inputs must match: entries have the shapes {shapes}. "
                "concat() puts entries of different lengths together."
            )
        return join(np.stack, jnp.stack, rows)

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
        added = None if self.added is None else tuple(self.added)
        return (rows, self.block, added), (*told, self.is_open, self.origin)


def unflatten(told: Any, children: Any) -> Entries:
    """Returns the entries of what `Entries.flatten` returned."""
    rows, block, added = children
    dtype, grows, clears, infers, shape, is_open, origin = told
    kept = None if rows is None else list(rows)
    made = Entries(dtype, grows, clears, infers, shape, kept, block)
    made.is_open, made.origin = is_open, origin
    made.added = None if added is None else list(added)
    return made


def _move_outside(place: jax.Array, size: int) -> jax.Array:
    """Returns positions in which a negative one is behind the end, not from the end."""
    return jnp.where(place < 0, size, place)


def is_on_host() -> bool:
    """Returns whether a dataset's function runs, whose arrays are NumPy's."""
    return ambient.is_in_dataset() and jax_traces.is_clean()


def join(on_host: Any, by_jax: Any, rows: Sequence[Any]) -> Any:
    """Returns one array of several, made by NumPy if they are all of the host."""
    if is_on_host() and host_bodies.are_of_host(rows):
        return working_arrays.present(on_host([np.asarray(x) for x in rows]))
    return by_jax(rows)


def _is_in_inner_body() -> bool:
    """Whether a branch, or a loop that is none of converted code, writes entries."""
    frame = frames.frame()
    is_body = isinstance(frame, branch_frame.BranchFrame)
    return is_body and not getattr(frame, "is_loop_body", False)


def _leave_program() -> BaseException:
    """Returns what ends a trace that needs a number of the running program.

    A function then runs on the host; other programs have only the error.
    """
    if frames.outermost().is_compiled:
        return host_inputs.NeedsHost()
    return ValueError(
        "In a program a TensorArray cannot grow at a position that the program "
        "computes, because arrays of a program have fixed sizes. Give it size=, the "
        "largest number of entries, and leave out dynamic_size=True; or write at "
        "Python's numbers, as in `for i in range(n)`."
    )
