"""Batches: made, padded, cut to other sizes, and taken apart."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, elements, host_buffers, nodes
from unisono._src.input.stages.selecting import Make


class _Batches(cursors.OfSource, abc.ABC):
    """Consecutive elements made into batches; abstract."""

    def __init__(self, source: cursors.Cursor, size: int, drop: bool) -> None:
        super().__init__(source)
        self._size, self._drop = size, drop
        self._buffers = host_buffers.Buffers()

    @abc.abstractmethod
    def _make(self, block: Any) -> Any:
        """What becomes of the elements of a batch."""

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            block = self._source.read(self._size)
            if not len(block) or (self._drop and len(block) < self._size):
                break
            found.append(self._make(block))
            if len(block) < self._size:
                break
        return found

    def skip(self, count: int) -> int:
        whole, rest = divmod(self._source.skip(count * self._size), self._size)
        return whole if self._drop or not rest else whole + 1

    def get_state(self) -> dict[str, Any]:
        return {"size": self._size, "source": self._source.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        if state["size"] != self._size:
            raise ValueError(
                f"The position was saved with batches of {state['size']}, and counts "
                f"them; this dataset has batches of {self._size}. Continue with the "
                "same batch size."
            )
        self._source.set_state(state["source"])


@final
class _Stacked(_Batches):
    """Batches of elements."""

    def _make(self, block: Any) -> Any:
        return elements.stack(block, self._buffers.blank)


@final
class _Gathered(_Batches):
    """Batches of rows, each taken with one indexing operation."""

    def __init__(
        self, rows: nodes.Rows, indices: cursors.Cursor, size: int, drop: bool
    ) -> None:
        super().__init__(indices, size, drop)
        self._rows = rows
        self._only = getattr(rows, "only", None)

    def _make(self, block: Any) -> Any:
        if isinstance(block, range) and block.step == 1:
            if self._only is not None:
                return self._only[block.start : block.stop]
            return self._rows.slice(block.start, block.stop)
        return self._rows.take(np.asarray(block, np.intp), self._buffers.blank)


def batched_spec(spec: Any, size: int | None) -> Any:
    """The spec of a batch of elements."""
    return elements.map_leaves(
        lambda s: specs.TensorSpec(
            None if s.shape is None else (size, *s.shape), s.dtype
        ),
        spec,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Batching(nodes.Unary, abc.ABC):
    """Consecutive elements made into batches; abstract.

    Attributes:
        size: elements per batch.
        drop: whether a last, smaller batch is dropped.
    """

    size: int
    drop: bool
    # Stacked arrays are new; neighbouring rows may be a view, which tells.
    makes_new = True

    @property
    def cardinality(self) -> int:
        """How many batches there are."""
        inner = self.parent.cardinality
        if inner < 0:
            return inner
        return inner // self.size if self.drop else -(-inner // self.size)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Batch(Batching):
    """Consecutive elements stacked."""

    def cursor(self) -> cursors.Cursor:
        """Batch after batch."""
        parent = self.parent
        if isinstance(parent, nodes.Indexed) and (rows := parent.rows()) is not None:
            return _Gathered(rows, parent.indices(), self.size, self.drop)
        return _Stacked(parent.cursor(), self.size, self.drop)

    def _spec(self) -> Any:
        return batched_spec(self.parent.spec, self.size if self.drop else None)

    def __str__(self) -> str:
        return f"Batch({self.size}{', drop_remainder' if self.drop else ''})"


@final
class _Padded(_Batches):
    def __init__(self, source: cursors.Cursor, node: PaddedBatch) -> None:
        super().__init__(source, node.size, node.drop)
        self._node = node

    def _make(self, block: Any) -> Any:
        columns = [list(elements.leaves(e)) for e in block]
        shapes = list(elements.leaves(self._node.shapes))
        values = list(elements.leaves(self._node.values))
        padded = iter(
            _pad([row[i] for row in columns], shapes[i].shape, values[i])
            for i in range(len(shapes))
        )
        return elements.map_leaves(lambda _: next(padded), block[0])


def _pad(column: Sequence[Any], wanted: Any, value: Any) -> np.ndarray:
    arrays = [elements.as_array(x) for x in column]
    sizes = [max(a.shape[i] for a in arrays) for i in range(arrays[0].ndim)]
    if len(wanted) != len(sizes):
        raise ValueError(
            f"padded_shapes has {len(wanted)} axes for a component of "
            f"{len(sizes)} axes."
        )
    for axis, size in enumerate(wanted):
        if size is not None and size < sizes[axis]:
            raise _too_large_error(arrays, wanted)
        sizes[axis] = sizes[axis] if size is None else size
    out = np.full((len(arrays), *sizes), value, arrays[0].dtype)
    for row, a in enumerate(arrays):
        place: Any = (row, *map(slice, a.shape))
        out[place] = a
    return out


def _too_large_error(arrays: Sequence[np.ndarray], wanted: Any) -> Exception:
    """An element does not fit into its padded shape."""
    worst = max((a.shape for a in arrays), key=lambda s: s)
    return errors.DataLossError(
        f"Attempted to pad to a smaller size than the input element: shape {worst} "
        f"does not fit into padded_shapes {tuple(wanted)}."
    )


@final
@dataclasses.dataclass(frozen=True, eq=False)
class PaddedBatch(Batching):
    """Elements of different shapes, padded and stacked.

    Attributes:
        shapes: a `TensorSpec` per component; None means the longest of the batch.
        values: what to pad with, per component.
    """

    shapes: Any
    values: Any

    def cursor(self) -> cursors.Cursor:
        """Batch after batch."""
        return _Padded(self.parent.cursor(), self)

    def _spec(self) -> Any:
        return batched_spec(self.shapes, self.size if self.drop else None)

    def __str__(self) -> str:
        return f"PaddedBatch({self.size})"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Opaque(nodes.Keeping):
    """The same elements; hides the batch size, as a parallel batch does."""

    def selecting(self, make: Make) -> cursors.Cursor:
        """As they are."""
        return make()

    def __str__(self) -> str:
        return str(self.parent)


# A position is remembered every so many batches; it may hold a whole shuffle buffer.
_EVERY = 16


@final
class Stream(cursors.Cursor):
    """Batches as one stream of rows, from which any number can be taken at a time.

    The position is a batch and a row in it, whatever sizes are taken.
    """

    def __init__(self, source: cursors.Cursor) -> None:
        self._source = source
        self._trail = cursors.Trail(source, _EVERY)
        self._batch: Any = None
        self._row = self._rows = 0

    def read(self, count: int) -> list[Any]:
        """Single rows."""
        found: list[Any] = []
        while len(found) < count and self._has_rows():
            stop = min(self._rows, self._row + count - len(found))
            for row in range(self._row, stop):
                found.append(_row(self._batch, row))
            self._row = stop
        return found

    def take(self, count: int) -> Any:
        """The next `count` rows as a batch, fewer at the end, None after it."""
        parts: list[Any] = []
        missing = count
        while (missing or not parts) and self._has_rows():
            stop = min(self._rows, self._row + missing)
            parts.append(elements.rows(self._batch, self._row, stop))
            missing -= stop - self._row
            self._row = stop
        return elements.concatenate(parts) if parts else None

    def at_end(self) -> bool:
        """Whether no row is left."""
        return not self._has_rows()

    def _has_rows(self) -> bool:
        while self._row >= self._rows:
            self._trail.forget_before(self._trail.read_so_far)
            block = self._trail.read(1)
            self._row = self._rows = 0
            if not len(block):
                return False
            self._batch, self._rows = block[0], elements.length(block[0])
        return True

    def get_state(self) -> dict[str, Any]:
        """The batch and the row in it."""
        is_between = self._row >= self._rows
        index = self._trail.read_so_far - (0 if is_between else 1)
        row = 0 if is_between else self._row
        return {"row": row, "trail": self._trail.before(index)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at a row."""
        self._trail.return_to(state["trail"])
        self._row = self._rows = 0
        if state["row"] and self._has_rows():
            self._row = state["row"]

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def _row(batch: Any, row: int) -> Any:
    return elements.map_leaves(lambda x: x[row], batch)


def check_rows(spec: Any, what: str) -> None:
    """Raise `ValueError` if a component of the elements has no rows."""
    for path, part in elements.paths(spec):
        if part.shape == ():
            raise ValueError(
                f"Cannot {what} an input with scalar components: {path or 'it'} is a "
                "single value. Batch the dataset first: dataset.batch(size)."
            )


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Unbatch(nodes.Unary):
    """The rows of the elements."""

    def cursor(self) -> cursors.Cursor:
        """Row after row."""
        return Stream(self.parent.cursor())

    def _spec(self) -> Any:
        check_rows(self.parent.spec, "unbatch")
        return elements.map_leaves(
            lambda s: specs.TensorSpec(s.shape and s.shape[1:], s.dtype),
            self.parent.spec,
        )

    @property
    def cardinality(self) -> int:
        """Known if the size of every batch is."""
        inner = self.parent.cardinality
        if inner < 0:
            return inner
        leaves = elements.leaves(self.parent.spec)
        sizes = {s.shape[0] if s.shape else None for s in leaves}
        size = sizes.pop() if len(sizes) == 1 else None
        return nodes.UNKNOWN if size is None else inner * size


@final
class _Rebatched(cursors.Cursor):
    def __init__(
        self, source: cursors.Cursor, sizes: Sequence[int], drop: bool
    ) -> None:
        self._stream = Stream(source)
        self._sizes, self._drop = sizes, drop
        self._turn = 0

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not self._stream.at_end():
            size = self._sizes[self._turn % len(self._sizes)]
            batch = self._stream.take(size)
            if self._drop and elements.length(batch) < size:
                break
            self._turn += 1
            found.append(batch)
        return found

    def get_state(self) -> dict[str, Any]:
        return {"turn": self._turn, "stream": self._stream.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._turn = state["turn"]
        self._stream.set_state(state["stream"])

    def close(self) -> None:
        self._stream.close()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Rebatch(nodes.Unary):
    """Batches cut to other sizes, which take turns."""

    sizes: tuple[int, ...]
    drop: bool = False
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Batch after batch."""
        return _Rebatched(self.parent.cursor(), self.sizes, self.drop)

    def _spec(self) -> Any:
        check_rows(self.parent.spec, "rebatch")
        size = self.sizes[0] if len(set(self.sizes)) == 1 else None
        leaves = elements.leaves(self.parent.spec)
        given = {s.shape[0] if s.shape else None for s in leaves}
        fixed = self.drop or all(
            n is not None and size and n % size == 0 for n in given
        )
        inner = elements.map_leaves(
            lambda s: specs.TensorSpec(s.shape and s.shape[1:], s.dtype),
            self.parent.spec,
        )
        return batched_spec(inner, size if fixed else None)

    def __str__(self) -> str:
        return f"Rebatch({', '.join(map(str, self.sizes))})"
