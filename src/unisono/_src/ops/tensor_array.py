"""`TensorArray`: a list of arrays that loops write and read by position."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.tensor_shape import ShapeLike, TensorShape
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops import array_entries, bodies, tensors
from unisono._src.ops.array_entries import Entries
from unisono._src.ops.host import eager_values, working_arrays
from unisono._src.ops.tensors import DType, TensorLike

__all__ = ["TensorArray"]


@everyday_name(
    "TensorArray",
    difference=(
        "If a compiled function computes an index that it writes, all entries have one "
        "shape; writing out of range has no effect, and reading there gives zeros. A "
        "function in which the size grows runs on the host, unless the indices are "
        "known when it is traced. There is no `handle`, `flow` or `grad`."
    ),
)
@final
class TensorArray(bodies.LoopCarried):
    """A list of arrays of one dtype, for the values of a loop.

    In eager code, `write` changes the list itself, as in TensorFlow. In a compiled
    `function`, the methods return a new TensorArray, so write ``a = a.write(i, x)``. A
    TensorArray can be a loop variable of `while_loop` and a result of the branches of
    `cond`, and gradients flow through it.

    In a compiled `function`, the program may compute a position. Then all entries must
    have the same shape, a write at a position out of range has no effect, and a read
    there returns zeros. If the TensorArray grows, the function runs on the host, and
    only the bodies of its loops are compiled. This does not happen if the positions do
    not depend on numbers that the program computes, as in a loop over ``range(10)``
    without `break`.

    Args:
        dtype: the dtype of the entries.
        size: the number of entries.
        dynamic_size: whether a write past the end adds entries.
        clear_after_read: whether `read` removes the entry; True by default. It has an
            effect in eager code only, as in TensorFlow.
        tensor_array_name: accepted for compatibility with TensorFlow and ignored.
        handle: must be None.
        flow: must be None.
        infer_shape: whether all entries must have the shape of the first one.
        element_shape: the shape of an entry, or the part of it that is known.
        colocate_with_first_write_call: accepted for compatibility with TensorFlow and
            ignored.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        ValueError: `size` is missing, or a `handle` or `flow` is given.

    >>> import unisono
    >>> @unisono.function
    ... def count(x):
    ...     found = unisono.TensorArray(unisono.float32, size=4)
    ...     _, found = unisono.while_loop(
    ...         lambda i, _: i < 4,
    ...         lambda i, found: (i + 1, found.write(i, x * unisono.cast(i, x.dtype))),
    ...         (0, found),
    ...     )
    ...     return found.stack()
    >>> count(unisono.constant(2.0)).tolist()
    [0.0, 2.0, 4.0, 6.0]
    """

    __slots__ = ("_entries",)

    def __init__(
        self,
        dtype: DType,
        size: TensorLike | None = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: None = None,
        flow: None = None,
        infer_shape: bool = True,
        element_shape: ShapeLike = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        if handle is not None or flow is not None:
            raise ValueError(
                "A TensorArray has no handle and no flow here. Pass the TensorArray "
                "itself."
            )
        if size is None:
            raise ValueError(
                "Size must be declared for TensorArrays. Write "
                "TensorArray(dtype, size=0, dynamic_size=True) for one that grows."
            )
        count = _find_position(size)
        if not isinstance(count, int):
            raise ValueError(
                "The size of a TensorArray must be known when a function is compiled; "
                "received an array that the program computes. Give the largest size "
                "as a number."
            )
        is_host = array_entries.is_on_host()
        usable = working_arrays.usable_type if is_host else tensors.usable_type
        self._entries = Entries(
            dtype=np.dtype(usable(dtype)),
            grows=bool(dynamic_size),
            clears=clear_after_read is None or bool(clear_after_read),
            infers=bool(infer_shape),
            shape=TensorShape(element_shape),
            rows=[None] * count,
        )

    # Properties.

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the entries."""
        found: np.dtype = self._entries.dtype
        return found

    @property
    def dynamic_size(self) -> bool:
        """Whether a write past the end adds entries."""
        return self._entries.grows

    @property
    def element_shape(self) -> TensorShape:
        """The shape of an entry, or the part of it that is known."""
        return self._entries.shape

    def size(self, name: str | None = None) -> jax.Array:
        """Returns the number of entries.

        While a function is compiled, the result is a NumPy number, which can be used as
        a size.

        >>> int(TensorArray(np.float32, size=3).size())
        3
        """
        found: jax.Array
        if bodies.is_traced():
            found = tensors.known_numbers(np.asarray(self._entries.count(), np.int32))
        else:
            found = eager_values.tensor(self._entries.count())
        return found

    def __repr__(self) -> str:
        return (
            f"<TensorArray size={self._entries.count()} dtype={self.dtype} "
            f"element_shape={self.element_shape}>"
        )

    # Single entries.

    def write(
        self, index: TensorLike, value: TensorLike, name: object = None
    ) -> TensorArray:
        """Returns the TensorArray with an entry written at a position.

        Args:
            index: the position.
            value: the entry.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: the entry has a wrong dtype.
            OutOfRangeError: the position is out of range.
            ValueError: the entry has a wrong shape; or the size is dynamic, and a
                program of JAX outside `unisono.function` computes the position.

        >>> TensorArray(np.float32, size=2).write(1, 5.0).stack().tolist()
        [0.0, 5.0]
        """
        place, entries = _find_position(index), self._to_change()
        if isinstance(place, int):
            entries.put(place, value)
        else:
            entries.put_traced(place, entries.convert(value))
        return self._make(entries)

    def read(self, index: TensorLike, name: str | None = None) -> jax.Array:
        """Returns the entry at a position, or zeros if it was not written.

        Args:
            index: the position.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: the entry was removed by an earlier `read`.
            OutOfRangeError: the position is out of range.
            ValueError: the entry was not written, and its shape is not known.

        >>> float(TensorArray(np.float32, size=2).write(1, 5.0).read(1))
        5.0
        """
        place, entries = _find_position(index), self._entries
        if entries.is_open or not isinstance(place, int):
            return entries.get_traced(jnp.asarray(place))
        entries.check_range(place, "read from")
        rows = entries.rows
        if rows is not None and rows[place] is None and place in entries.read:
            raise errors.InvalidArgumentError(
                f"Could not read index {place} twice because it was cleared after a "
                "previous read (perhaps try setting clear_after_read = false?)"
            )
        found = entries.get(place)
        if rows is not None and entries.clears and not bodies.is_traced():
            rows[place] = None
            entries.read.add(place)
        return found

    # All entries.

    def stack(self, name: str | None = None) -> jax.Array:
        """Returns all entries in one array, along a new first axis.

        Raises:
            InvalidArgumentError: the entries have different shapes.
            ValueError: an entry was not written, and its shape is not known.

        >>> TensorArray(np.int32, size=2).unstack([3, 4]).stack().tolist()
        [3, 4]
        """
        found: jax.Array = self._entries.stack(range(self._entries.count()))
        return found

    def gather(self, indices: TensorLike, name: str | None = None) -> jax.Array:
        """Returns the entries at some positions in one array.

        Args:
            indices: the positions, along one axis.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            OutOfRangeError: a position is out of range.

        >>> TensorArray(np.int32, size=3).unstack([3, 4, 5]).gather([2, 0]).tolist()
        [5, 3]
        """
        places = tensors.tensor(indices)
        known = bodies.find_known_value(places)
        if known is None:
            return self._entries.get_traced(places)
        chosen = [int(i) for i in np.asarray(known)]
        for place in chosen:
            self._entries.check_range(place, "read from")
        found: jax.Array = self._entries.stack(chosen)
        return found

    def concat(self, name: str | None = None) -> jax.Array:
        """Returns all entries in one array, concatenated along the first axis.

        Raises:
            InvalidArgumentError: the entries are scalars.

        >>> TensorArray(np.int32, size=2).unstack([[3, 4], [5, 6]]).concat().tolist()
        [3, 4, 5, 6]
        """
        found = [self._entries.get(i) for i in range(self._entries.count())]
        for i, row in enumerate(found):
            if row.ndim == 0:
                raise errors.InvalidArgumentError(
                    f"Concat saw a scalar shape at index {i} but requires at least "
                    "vectors. Write stack()."
                )
        join = array_entries.join
        return join(np.concatenate, jnp.concatenate, found) if found else self.stack()

    def unstack(self, value: TensorLike, name: str | None = None) -> TensorArray:
        """Returns the TensorArray with the rows of an array as its entries.

        Args:
            value: the array.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            ValueError: there are more rows than entries.

        >>> float(TensorArray(np.float32, size=2).unstack([3.0, 4.0]).read(1))
        4.0
        """
        array, size = self._entries.convert(value), self._entries.count()
        if array.ndim == 0:
            raise ValueError("unstack needs an array with an axis, received a scalar.")
        if len(array) > size and not self.dynamic_size:
            raise ValueError(
                f"Cannot unstack {len(array)} tensors into a TensorArray of static "
                f"size {size}"
            )
        entries = self._to_change()
        entries.take_shape(array.shape[1:])
        if bodies.is_traced():
            # As one array: a loop reads it at positions that the program computes.
            entries.replace(None, array)
        else:
            is_host = isinstance(array, np.ndarray)
            entries.replace(list(array if is_host else jnp.unstack(array)), None)
        return self._make(entries)

    def scatter(
        self, indices: TensorLike, value: TensorLike, name: str | None = None
    ) -> TensorArray:
        """Returns the TensorArray with the rows of an array written at some positions.

        Args:
            indices: the positions, along one axis.
            value: the array, with a row for each position.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            OutOfRangeError: a position is out of range.

        >>> TensorArray(np.int32, size=3).scatter([2, 0], [4, 5]).stack().tolist()
        [5, 0, 4]
        """
        places, rows = tensors.tensor(indices), self._entries.convert(value)
        if places.ndim != 1 or rows.shape[:1] != places.shape:
            raise errors.InvalidArgumentError(
                "scatter needs a row for each position, received positions of shape "
                f"{places.shape} and an array of shape {rows.shape}."
            )
        entries, known = self._to_change(), bodies.find_known_value(places)
        if known is None:
            entries.put_traced(places, rows)
        else:
            for place, row in zip(np.asarray(known), rows, strict=True):
                entries.put(int(place), row)
        return self._make(entries)

    def split(
        self, value: TensorLike, lengths: TensorLike, name: str | None = None
    ) -> TensorArray:
        """Returns the TensorArray with parts of an array as its entries.

        Args:
            value: the array.
            lengths: the length of each part along the first axis.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: the lengths do not fit the array or the size.
            ValueError: a compiled program computes the lengths.

        >>> parts = TensorArray(np.int32, size=2, infer_shape=False)
        >>> parts.split([3, 4, 5], [1, 2]).read(1).tolist()
        [4, 5]
        """
        array = self._entries.convert(value)
        known = bodies.find_known_value(tensors.tensor(lengths))
        if known is None:
            raise ValueError(
                "The lengths of TensorArray.split must be known when a function is "
                "compiled; received an array that the program computes."
            )
        sizes = [int(n) for n in np.asarray(known)]
        if array.ndim == 0 or sum(sizes) != len(array):
            raise errors.InvalidArgumentError(
                "Expected sum of lengths to be equal to values.shape[0], but sum of "
                f"lengths is {sum(sizes)} and value's shape is: {list(array.shape)}"
            )
        size = self._entries.count()
        if len(sizes) != size and not self.dynamic_size:
            raise errors.InvalidArgumentError(
                "TensorArray's size is not equal to the size of lengths "
                f"({size} vs. {len(sizes)}), and the TensorArray is not marked as "
                "dynamically resizeable."
            )
        entries, ends = self._to_change(), list(itertools.accumulate(sizes))
        parts = jnp.split(array, ends[:-1])
        if len(set(sizes)) == 1:
            entries.take_shape(parts[0].shape)
        entries.replace(parts, None)
        return self._make(entries)

    def identity(self) -> TensorArray:
        """Returns a TensorArray with the same entries.

        >>> TensorArray(np.int32, size=2).unstack([3, 4]).identity().stack().tolist()
        [3, 4]
        """
        return self._make(self._entries.copy())

    def close(self, name: str | None = None) -> None:
        """Does nothing, because Python frees the entries.

        >>> TensorArray(np.int32, size=2).close()
        """

    # What loops, branches and JAX ask for.

    def settle(self) -> TensorArray:
        """Returns the TensorArray in the form that a compiled loop carries."""
        return self._make(self._entries.settle())

    def fill_like(self, other: TensorArray) -> TensorArray:
        """Returns the unwritten TensorArray in the form of another one."""
        return self._make(self._entries.fill_like(other._entries))

    def _tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return self._entries.flatten()

    @classmethod
    def _tree_unflatten(cls, told: Any, children: Any) -> TensorArray:
        return cls._make(array_entries.unflatten(told, children))

    @classmethod
    def _make(cls, entries: Entries) -> TensorArray:
        made: TensorArray = cls.__new__(cls)
        made._entries = entries
        return made

    def _to_change(self) -> Entries:
        """Returns what a method changes: itself eagerly, and a copy in a program."""
        return self._entries.copy() if bodies.is_traced() else self._entries


def _find_position(index: Any) -> Any:
    """Returns a position as a Python number if it is known, or else as an array."""
    if isinstance(index, int):
        return index
    array = tensors.tensor(index)
    if not jnp.issubdtype(array.dtype, jnp.integer) or array.ndim:
        raise TypeError(
            "A position or size of a TensorArray is one whole number, received an "
            f"array of shape {array.shape} and type {array.dtype}."
        )
    known = bodies.find_known_value(array)
    return array if known is None else int(known)


# What a loop asks for that writes one which grows.


def record(array: TensorArray, origin: int) -> TensorArray:
    """Returns one that only notes what a turn of a loop adds to it."""
    return _change(array, Entries.record, origin)


def find_notes(array: object) -> tuple[int, list[tuple[Any, Any]]] | None:
    """Returns the `origin` given to `record` and what was added; None for others."""
    if not isinstance(array, TensorArray):
        return None
    entries = array._entries  # noqa: SLF001 - of this module's class.
    return None if entries.added is None else (entries.origin, entries.added)


def add_notes(array: TensorArray, noted: TensorArray) -> TensorArray:
    """Returns a TensorArray with what another one has noted."""
    return _change(array, Entries.add, noted._entries)  # noqa: SLF001 - as above.


def open_for(array: TensorArray, size: int, shape: tuple[int, ...]) -> TensorArray:
    """Returns a TensorArray with as many entries as there will be after a loop."""
    return _change(array, Entries.open, size, shape)


def close_after(array: TensorArray) -> TensorArray:
    """Returns a TensorArray after the loop for which it was opened."""
    return _change(array, Entries.close)


def _change(
    array: TensorArray, method: Callable[..., Entries], *args: object
) -> TensorArray:
    # SLF001: of this module's class.
    made: TensorArray = array._make(method(array._entries, *args))  # noqa: SLF001
    return made
