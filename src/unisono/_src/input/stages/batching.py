"""Makes batches, pads them, cuts them to other sizes, and takes them apart."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors, host_types, nest
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.input.plan import cursors, elements, host_buffers, nodes
from unisono._src.input.stages import argument_checks, mapping
from unisono._src.input.stages.selecting import Make

# A shape whose sizes may be None.
_Shape = TensorShape | tuple[int | None, ...]


class _Batches(cursors.UnaryCursor, abc.ABC):
    """Makes batches of consecutive elements; abstract."""

    def __init__(self, source: cursors.Cursor, node: Batching) -> None:
        super().__init__(source)
        self._size, self._drop = node.size, node.drop
        self._buffers = node.buffers

    @abc.abstractmethod
    def _make(self, block: Sequence[Any]) -> object:
        """Returns the batch of some elements."""

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
    """Stacks elements into batches."""

    def __init__(self, node: Batch) -> None:
        parent = node.parent
        rows = host_buffers.BatchRows(node.size, node.buffers)
        # Only a map makes its elements where they are told to be.
        if isinstance(parent, mapping.Map):
            super().__init__(parent.cursor(rows), node)
        else:
            super().__init__(parent.cursor(), node)
        self._join = rows.join

    def _make(self, block: Sequence[Any]) -> object:
        return elements.stack(block, self._buffers.allocate, self._join)


@final
class _Gathered(_Batches):
    """Takes each batch out of a table with one indexing operation."""

    def __init__(
        self, rows: nodes.Rows, indices: cursors.Cursor, node: Batching
    ) -> None:
        super().__init__(indices, node)
        self._rows = rows
        # A table of one array is sliced directly, which is the most common case.
        # Only `arrays.Table` has it.
        self._only = getattr(rows, "only", None)

    def _make(self, block: Sequence[Any]) -> object:
        if isinstance(block, range) and block.step == 1:
            # Neighbouring rows are a view; nothing is copied.
            if self._only is not None:
                return self._only[block.start : block.stop]
            return self._rows.slice(block.start, block.stop)
        return self._rows.take(np.asarray(block, np.intp), self._buffers.allocate)


def batched_spec(spec: object, size: int | None) -> elements.Spec:
    """Returns the spec of a batch of elements; a size of None is not fixed."""
    return elements.map_specs(
        lambda s: specs.TensorSpec(
            None if s.shape.rank is None else (size, *s.shape), s.dtype
        ),
        spec,
    )


class Batching(nodes.Unary, abc.ABC):
    """Batches of consecutive elements; abstract.

    Attributes:
        size: the number of elements per batch.
        drop: whether a smaller last batch is dropped.
    """

    size: int
    drop: bool
    # Stacked arrays are new. Neighbouring rows may be a view, but a view knows that it
    # does not own its memory.
    makes_new = True

    @functools.cached_property
    def buffers(self) -> host_buffers.Buffers:
        """Returns memory for batches, which later epochs use again."""
        return host_buffers.Buffers()

    @property
    def cardinality(self) -> int:
        """Returns how many batches there are, as far as the plan tells."""
        inner = self.parent.cardinality
        if inner < 0:
            return inner
        return inner // self.size if self.drop else -(-inner // self.size)


@final
class Batch(Batching):
    """Batches of stacked elements."""

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads batch after batch."""
        parent = self.parent
        if isinstance(parent, nodes.Indexed) and (rows := parent.rows()) is not None:
            return _Gathered(rows, parent.indices(), self)
        return _Stacked(self)

    def _spec(self) -> elements.Spec:
        return batched_spec(self.parent.spec, self.size if self.drop else None)

    def __str__(self) -> str:
        return f"Batch({self.size}{', drop_remainder' if self.drop else ''})"


@final
class _Padded(_Batches):
    """Pads elements and stacks them into batches."""

    def __init__(self, source: cursors.Cursor, node: PaddedBatch) -> None:
        super().__init__(source, node)
        self._node = node

    def _make(self, block: Sequence[Any]) -> object:
        columns = [list(elements.leaves(e)) for e in block]
        shapes = list(elements.leaves(self._node.shapes))
        values = list(elements.leaves(self._node.values))
        padded = iter(
            _pad([row[i] for row in columns], shapes[i], values[i])
            for i in range(len(shapes))
        )
        return elements.map_leaves(lambda _: next(padded), block[0])


def _pad(column: Sequence[Any], spec: Any, value: object) -> np.ndarray:
    """Returns arrays padded with a value to one shape, and stacked.

    Args:
        column: the arrays.
        spec: the padded shape, in which None means the largest size of the arrays, and
            the type.
        value: the padding.

    Raises:
        ValueError: the shape has another number of axes.
        DataLossError: an array is larger than the shape.
        InvalidArgumentError: an array has another type. An empty one may: an empty list
            does not tell its type.
    """
    wanted: TensorShape = spec.shape
    arrays = [elements.as_array(x) for x in column]
    types = {a.dtype for a in arrays if a.size and a.dtype != spec.dtype}
    if types:
        raise errors.InvalidArgumentError(
            "Cannot batch elements of different types: "
            f"{', '.join(sorted(map(str, types | {spec.dtype})))}. Make the types "
            "equal with map."
        )
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
    out = np.full((len(arrays), *sizes), value, spec.dtype)
    for row, a in enumerate(arrays):
        place: Any = (row, *map(slice, a.shape))
        # A single text is an array that holds it, and not to be stored itself.
        out[place] = a[()]
    return out


def _too_large_error(arrays: Sequence[np.ndarray], wanted: TensorShape) -> Exception:
    """Returns the error for an element that does not fit into its padded shape."""
    worst = max((a.shape for a in arrays), key=lambda s: s)
    return errors.DataLossError(
        f"Attempted to pad to a smaller size than the input element: shape {worst} "
        f"does not fit into padded_shapes {tuple(wanted)}."
    )


@final
class PaddedBatch(Batching):
    """Batches of elements that are padded to one shape.

    Attributes:
        shapes: a `TensorSpec` per component; None means the longest of the batch.
        values: the padding of each component.
    """

    shapes: Any
    values: Any

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads batch after batch."""
        return _Padded(self.parent.cursor(), self)

    def _spec(self) -> elements.Spec:
        return batched_spec(self.shapes, self.size if self.drop else None)

    def __str__(self) -> str:
        return f"PaddedBatch({self.size})"


@final
class HiddenBatchSize(nodes.AllElements):
    """The same elements, with a hidden batch size; a parallel batch in TensorFlow."""

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns the elements as they are."""
        return make()

    def __str__(self) -> str:
        return str(self.parent)


# A position is remembered every so many batches, not each time: it may hold a whole
# shuffle buffer.
_EVERY = 16


@final
class Stream(cursors.UnaryCursor):
    """Reads batches as one stream of rows, in pieces of any size.

    The position is a batch and a row in it, so it does not depend on the sizes.
    """

    def __init__(self, source: cursors.Cursor) -> None:
        super().__init__(source)
        self._history = cursors.PositionHistory(source, _EVERY)
        self._batch: Any = None
        self._row = self._rows = 0

    def read(self, count: int) -> list[Any]:
        """Returns the next single rows."""
        found: list[Any] = []
        while len(found) < count and self._has_rows():
            stop = min(self._rows, self._row + count - len(found))
            for row in range(self._row, stop):
                found.append(_row(self._batch, row))
            self._row = stop
        return found

    def take(self, count: int) -> object:
        """Returns the next `count` rows as a batch; fewer at the end, None after it."""
        parts: list[Any] = []
        missing = count
        # A size of 0, which `rebatch` allows, still
        # takes an empty part, for its shape and type.
        while (missing or not parts) and self._has_rows():
            stop = min(self._rows, self._row + missing)
            parts.append(elements.rows(self._batch, self._row, stop))
            missing -= stop - self._row
            self._row = stop
        return elements.concatenate(parts) if parts else None

    def _has_rows(self) -> bool:
        """Whether a row is left; reads the next batch if this one is used up."""
        # More than once if batches are empty.
        while self._row >= self._rows:
            self._history.forget_before(self._history.read_so_far)
            block = self._history.read(1)
            self._row = self._rows = 0
            if not len(block):
                return False
            self._batch, self._rows = block[0], elements.length(block[0])
        return True

    def get_state(self) -> dict[str, Any]:
        """Returns the position: a batch and a row in it."""
        # Between two batches it is the next one, of which no row was taken.
        is_between = self._row >= self._rows
        index = self._history.read_so_far - (0 if is_between else 1)
        row = 0 if is_between else self._row
        return {"row": row, "trail": self._history.position_before(index)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a batch and a row in it."""
        self._history.return_to(state["trail"])
        self._row = self._rows = 0
        if state["row"] and self._has_rows():
            self._row = state["row"]


def _row(batch: object, row: int) -> object:
    return elements.map_leaves(lambda x: x[row], batch)


def check_rows(spec: object, what: str) -> None:
    """Raises `ValueError` if a component of the elements has no rows."""
    for path, part in elements.paths(spec):
        if part.shape == ():
            raise ValueError(
                f"Cannot {what} an input with scalar components: {path or 'it'} is a "
                "single value. Batch the dataset first: dataset.batch(size)."
            )


@final
class Unbatch(nodes.Unary):
    """The rows of the elements, as elements."""

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads row after row."""
        return Stream(self.parent.cursor())

    def _spec(self) -> elements.Spec:
        check_rows(self.parent.spec, "unbatch")
        return elements.map_specs(
            lambda s: specs.TensorSpec(s.shape[1:], s.dtype), self.parent.spec
        )

    @property
    def cardinality(self) -> int:
        """Returns how many rows there are; unknown if batches have no fixed size."""
        inner = self.parent.cardinality
        if inner < 0:
            return inner
        size = elements.common_rows(self.parent.spec)
        return nodes.UNKNOWN if size is None else inner * size


@final
class _Rebatched(cursors.Cursor):
    """Cuts a stream of rows into batches of sizes that take turns."""

    def __init__(self, node: Rebatch) -> None:
        self._stream = Stream(node.parent.cursor())
        self._node = node
        self._turn = 0
        self._over = False

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        sizes = self._node.sizes
        while len(found) < count and not self._over:
            size = sizes[self._turn % len(sizes)]
            batch = self._stream.take(size)
            if batch is None and not size:
                # As in TensorFlow, empty batches come behind the last row, too.
                batch = nodes.zeros(self._node.spec, unknown=0)
            length = 0 if batch is None else elements.length(batch)
            self._over = length < size
            if batch is not None and not (self._over and self._node.drop):
                self._turn += 1
                found.append(batch)
        return found

    def get_state(self) -> dict[str, Any]:
        stream = self._stream.get_state()
        return {"turn": self._turn, "stream": stream, "over": self._over}

    def set_state(self, state: dict[str, Any]) -> None:
        self._turn = state["turn"]
        self._stream.set_state(state["stream"])
        # Positions that earlier versions saved have no such key.
        self._over = state.get("over", False)

    def close(self) -> None:
        self._stream.close()


@final
class Rebatch(nodes.Unary):
    """Batches of other sizes, which take turns."""

    sizes: tuple[int, ...]
    drop: bool = False
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads batch after batch."""
        return _Rebatched(self)

    def _spec(self) -> elements.Spec:
        check_rows(self.parent.spec, "rebatch")
        size = self.sizes[0] if len(set(self.sizes)) == 1 else None
        leaves = elements.leaves(self.parent.spec)
        given = {s.shape[0] if s.shape.rank else None for s in leaves}
        fixed = self.drop or all(
            n is not None and size and n % size == 0 for n in given
        )
        inner = elements.map_specs(
            lambda s: specs.TensorSpec(s.shape[1:], s.dtype), self.parent.spec
        )
        return batched_spec(inner, size if fixed else None)

    def __str__(self) -> str:
        return f"Rebatch({', '.join(map(str, self.sizes))})"


def _loosen(shape: TensorShape, certain: bool) -> TensorShape | tuple[None, ...]:
    """Returns a shape; without its sizes if it is only that of the first element."""
    return shape if certain or shape.rank is None else (None,) * len(shape)


def find_padding(
    spec: object, shapes: object, values: object, certain: bool = True
) -> tuple[Any, Any]:
    """Returns the padded shape and the value of every component.

    Args:
        spec: the spec of an element.
        shapes: the shapes that the user gave, or None.
        values: the values that the user gave, or None.
        certain: whether all elements fit `spec`, not only the first.

    Raises:
        ValueError: a shape is not known, or does not fit its component.
        TypeError: a value cannot be of the type of its component.
    """
    found = list(elements.leaves(spec))
    wanted: list[_Shape | None]
    if shapes is None:
        wanted = [_loosen(s.shape, certain) for s in found]
    else:
        wanted = [*_flat_shapes(spec, shapes)]
    for s, shape in zip(found, wanted, strict=True):
        if s.shape.rank is None or shape is None:
            raise ValueError(
                "You must provide `padded_shapes` argument because component of "
                f"unknown rank: {s}."
            )
        if len(shape) != len(s.shape) or (certain and _is_too_small(shape, s.shape)):
            raise ValueError(
                f"The padded shape {tuple(shape)} is not compatible with the shape "
                f"{s.shape} of the corresponding input component."
            )
    given = _flat_values(spec, values)
    made = iter(
        specs.TensorSpec(shape, s.dtype) for s, shape in zip(found, wanted, strict=True)
    )
    filler = iter(given)
    return (
        elements.map_leaves(lambda _: next(made), spec),
        elements.map_leaves(lambda _: next(filler), spec),
    )


def _is_too_small(padded: _Shape, shape: TensorShape) -> bool:
    """Whether an element surely does not fit into a padded shape."""
    pairs = zip(padded, shape, strict=True)
    return any(p is not None and n is not None and p < n for p, n in pairs)


def _flat_shapes(spec: object, shapes: object) -> list[tuple[int | None, ...] | None]:
    """Returns the shapes in the order of the components; a shape is itself a tuple."""
    if not elements.is_structure(spec):
        return [argument_checks.shape(shapes, "padded_shapes")]
    found = argument_checks.parts(spec, shapes, "padded_shapes", "an element")
    pairs = zip(nest.children(spec), found, strict=True)
    return [shape for s, p in pairs for shape in _flat_shapes(s, p)]


def _spread_values(spec: Any, values: Any) -> list[Any]:
    """Returns the value for every component; one value stands for all below it."""
    if not elements.is_structure(spec):
        return [values]
    if not elements.is_structure(values):
        parts = [values] * len(spec)
    elif isinstance(spec, Mapping) and isinstance(values, Mapping):
        if values.keys() != spec.keys():
            raise ValueError(
                f"padding_values has the components {sorted(values)}, and elements "
                f"have {sorted(spec)}."
            )
        parts = nest.children(values)
    elif (
        isinstance(spec, Mapping)
        or isinstance(values, Mapping)
        or len(values) != len(spec)
    ):
        raise ValueError(
            f"padding_values must have the structure of an element, {spec}, or be one "
            f"value, received {values!r}."
        )
    else:
        parts = list(values)
    pairs = zip(nest.children(spec), parts, strict=True)
    return [value for s, v in pairs for value in _spread_values(s, v)]


def _flat_values(structure: object, values: object) -> list[Any]:
    """Returns the value for every component, in its type; zero or empty by default."""
    flat = _spread_values(structure, values)
    made = []
    for spec, value in zip(elements.leaves(structure), flat, strict=True):
        if value is None:
            value = b"" if spec.dtype.kind == "O" else np.zeros((), spec.dtype)[()]
        array = elements.as_array(elements.to_array(value))
        if not _fits(array, isinstance(value, (int, float)), spec.dtype):
            raise TypeError(
                f"Value to be padded with ({value!r}) does not match the type of its "
                f"component, {spec.dtype}."
            )
        is_text = spec.dtype.kind == "O"
        made.append(array[()] if is_text else np.asarray(value, spec.dtype))
    return made


def _fits(value: np.ndarray, is_python: bool, wanted: np.dtype[Any]) -> bool:
    """Whether a component of a type can be padded with a value."""
    if value.dtype == wanted:
        return True
    if is_python and wanted.kind in "iuf":
        # Python's numbers have no type of their own, so they take that one.
        return host_types.can_hold(wanted, value.dtype)
    # A type of JAX may have fewer bits than the program asked for, here or there.
    is_kind = value.dtype.kind == wanted.kind and wanted.kind in "iuf"
    return is_kind and (wanted.kind == "f" or int(value) == int(value.astype(wanted)))
