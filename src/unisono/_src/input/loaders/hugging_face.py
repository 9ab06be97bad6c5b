"""Makes a plan from tables and streams of Hugging Face `datasets`.

Columns become arrays of the types that the table declares. They are Arrow arrays, which
know their types, lengths and nulls. The format "numpy" of `datasets` loses some of
that: it makes numbers of nulls, and cuts text at zero bytes.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import (
    cursors,
    elements,
    first_elements,
    loader_structures,
    nodes,
)
from unisono._src.input.sources import iterables

_log = logging.getLogger("unisono")
# How many places of a table are looked at to compare its order between workers.
_SAMPLED_ROWS = 64


@final
class _TableRows:
    """The rows of a `datasets.Dataset`."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._names = table.format["columns"]
        # If the user has set a format, the values have their types already.
        is_plain = table.format["type"] is None
        kinds = _types(table.features) if is_plain else {}
        # Columns that `datasets` decodes, such as images, have no Arrow type to go by.
        # They are read apart from the others, as Python values.
        typed = [name for name in self._names if name in kinds]
        others = [name for name in self._names if name not in kinds]
        self._arrow = table.with_format("arrow", columns=typed) if typed else None
        self._others = table.with_format(None, columns=others) if others else None

    def element_at(self, index: int) -> object:
        if self._arrow is None:
            return _row(self._table[int(index)], {})
        return elements.map_leaves(lambda x: x[0], self.slice(index, index + 1))

    def take(self, indices: np.ndarray, allocate: nodes.Allocate) -> object:
        return self._read([int(i) for i in indices])

    def slice(self, start: int, stop: int) -> object:
        return self._read(slice(int(start), int(stop)))

    def _read(self, key: Any) -> object:
        if self._arrow is None:
            return _batch(self._table[key])
        found = _arrays(self._arrow[key])
        if self._others is not None:
            found |= _batch(self._others[key])
        return {name: found[name] for name in self._names}


@final
class HuggingFaceTable(nodes.RowSource):
    """A source of the examples of a `datasets.Dataset`, to be batched."""

    source: Any

    # A property in place of the base class's constant, as only the instance knows.
    @functools.cached_property
    def samples_spec(self) -> bool:  # type: ignore[override]
        """Whether rows may differ in shape."""
        kinds = _types(self.source.features)
        is_decoded = len(kinds) < len(self.source.features)
        leaves = elements.leaves(self._empty_spec())
        return is_decoded or any(s.shape.rank for s in leaves)

    def rows(self) -> _TableRows:
        """Returns the examples as rows."""
        return _TableRows(self.source)

    @property
    def cardinality(self) -> int:
        """Returns how many examples there are."""
        return len(self.source)

    def _spec(self) -> elements.Spec:
        if len(self.source):
            return elements.spec_of(self.rows().element_at(0))
        return self._empty_spec()

    def _empty_spec(self) -> elements.Spec:
        return _spec(self.source.with_format("arrow"))

    def __str__(self) -> str:
        return f"HuggingFace({len(self.source)})"


def sample_order(node: HuggingFaceTable) -> list[tuple[int, int]]:
    """Returns some positions in a shuffled or selected table, and the rows there."""
    # `datasets` has no public name for the list of chosen rows.
    chosen = getattr(node.source, "_indices", None)
    if chosen is None:
        return []
    column = chosen.column(0)
    places = np.unique(np.linspace(0, len(column) - 1, _SAMPLED_ROWS).astype(int))
    return [(int(i), column[int(i)].as_py()) for i in places if len(column)]


@final
class _Start:
    """Begins an iteration over a copy of the stream.

    The position that a stream tells is that of its last iteration, so iterations over
    the user's own stream would disturb each other.
    """

    def __init__(self, node: HuggingFaceStream) -> None:
        self._node = node
        self.stream: Any = None
        # The position to begin at; None begins at the first example of the epoch.
        self.position: Any = None
        self.epoch: int | None = None

    def __call__(self) -> Iterator[Any]:
        self.stream = _copy_stream(self._node.source)
        if self.epoch is not None:
            self.stream.set_epoch(self.epoch)
        if self.position is not None:
            self.stream.load_state_dict(self.position)
        return iterables.Elements(iter(self.stream), self._node.convert)


@final
class _StreamExamples(cursors.IteratorCursor):
    """The examples of a `datasets.IterableDataset`, which tells its position itself.

    With a shuffle buffer it does not; then it is read again from the beginning.
    """

    def __init__(self, node: HuggingFaceStream) -> None:
        self._node, self._start = node, _Start(node)
        super().__init__(self._start)

    def get_state(self) -> dict[str, Any]:
        start = self._start
        # Nothing was read since `set_state`: the position is still the one it got.
        if self._iterator is None and start.position is not None:
            return {"passed": self._passed, "stream": start.position}
        if self._iterator is None or not self._node.tells_position:
            source = self._node.source
            epoch = source.epoch if start.epoch is None else start.epoch
            # Without a position of the stream: a count, in this epoch and order.
            return {"epoch": epoch, "order": _order_key(source), **super().get_state()}
        return {"passed": self._passed, "stream": start.stream.state_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.close()
        start = self._start
        start.position, start.epoch = state.get("stream"), state.get("epoch")
        if start.position is not None:
            # A stream in another epoch ignores the position and starts from the
            # beginning, without an error.
            start.epoch = start.position["epoch"]
            self._passed, self._failed = state["passed"], 0
            return
        if state["order"] != _order_key(self._node.source):
            _log.warning(
                "Continuing in a Hugging Face stream that shuffles without a seed: its "
                "order differs from before, so examples will be repeated and "
                "missed. Give shuffle(seed=...)."
            )
        super().set_state(state)


def _copy_stream(stream: Any) -> object:
    """Returns a stream over the same data, with a position and an epoch of its own."""
    own = object.__new__(type(stream))
    # `copy.copy` will not do: the copy of a stream would share its `__dict__`. The
    # private attributes are the only access to what holds position and epoch.
    own.__dict__.update(stream.__dict__)
    own._ex_iterable = _copy_part(_last_part(stream))
    own._epoch = copy.deepcopy(stream._epoch)  # noqa: SLF001
    return own


def _last_part(stream: Any) -> object:
    """Returns the part of a stream that gives its examples."""
    # `datasets` has no public name for it.
    return stream._ex_iterable  # noqa: SLF001


def _is_part(x: object) -> bool:
    """Whether an object is one of the nested iterables that a stream consists of."""
    # All of them have this method; their base class is private.
    return hasattr(x, "_init_state_dict")


def _copy_part(part: object) -> object:
    """Returns a copy of a part and of all parts within it."""
    own = object.__new__(type(part))
    own.__dict__.update(part.__dict__)
    for name, value in part.__dict__.items():
        if _is_part(value):
            own.__dict__[name] = _copy_part(value)
        elif isinstance(value, list) and value and all(map(_is_part, value)):
            own.__dict__[name] = [_copy_part(v) for v in value]
    return own


def _parts(part: object) -> Iterator[Any]:
    """Yields the parts of a stream, from its end to its sources."""
    yield part
    for value in part.__dict__.values():
        for inner in value if isinstance(value, list) else [value]:
            if _is_part(inner):
                yield from _parts(inner)


def _order_key(stream: object) -> str | None:
    """Returns a text that differs between shuffled orders; None without a shuffle."""
    drawn = [
        repr(part.generator.bit_generator.state)
        for part in _parts(_last_part(stream))
        if hasattr(part, "buffer_size")  # A shuffle buffer.
    ]
    return hashlib.sha256("".join(drawn).encode()).hexdigest()[:16] if drawn else None


@final
class HuggingFaceStream(iterables.Loader):
    """A source of the examples of a `datasets.IterableDataset`, to be batched."""

    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that starts from the beginning."""
        return first_elements.watch(self, _StreamExamples(self))

    @functools.cached_property
    def _kinds(self) -> dict[str, Any]:
        # If the user has set a format, the values have their types already; `datasets`
        # has no public name for it. Cached because `features` makes a copy each time.
        is_formatted = self.source._formatting  # noqa: SLF001
        features = None if is_formatted else self.source.features
        return _types(features) if features else {}

    def convert(self, element: object) -> object:
        """Returns an example as arrays that no one else will change."""
        found = _row(element, self._kinds)
        return elements.copy(found)

    @property
    def tells_position(self) -> bool:
        """Whether the stream tells its own position exactly."""
        return hasattr(self.source, "state_dict") and _order_key(self.source) is None

    @property
    def is_batched(self) -> bool:
        """Whether the rows are batches that `IterableDataset.batch` made."""
        return any(map(_is_batching, _parts(_last_part(self.source))))

    def _spec(self) -> elements.Spec:
        empty = "an empty stream: it has no examples. Give one that has at least one."
        return nodes.first_spec(self, empty)


def _is_batching(part: object) -> bool:
    """Whether a part is what `IterableDataset.batch` adds to a stream."""
    # `batch` maps a private function of `datasets`, which only its name gives away.
    fn = getattr(part, "function", None)
    fn = getattr(fn, "func", fn)
    name, module = getattr(fn, "__name__", ""), getattr(fn, "__module__", "")
    return name.startswith("_batch") and module.startswith("datasets.")


def holds_examples(node: nodes.Node) -> bool:
    """Whether each element of a source is one example: a row of a table."""
    if isinstance(node, HuggingFaceStream):
        return not node.is_batched
    return isinstance(node, HuggingFaceTable)


def to_node(loader: object) -> nodes.Node | None:
    """Returns the plan of a table or a stream; None for anything else.

    Raises:
        TypeError: it is a dict of several.
    """
    datasets = sys.modules.get("datasets")
    if datasets is None or not hasattr(datasets, "IterableDataset"):
        return None
    if isinstance(loader, (datasets.DatasetDict, datasets.IterableDatasetDict)):
        names = ", ".join(map(repr, loader)) or "none"
        raise TypeError(
            f"A {type(loader).__name__} has several datasets (its splits: {names}). "
            f"Give one split: d[{next(iter(loader), 'train')!r}]."
        )
    if isinstance(loader, datasets.Dataset):
        return HuggingFaceTable(loader)
    if isinstance(loader, datasets.IterableDataset):
        return HuggingFaceStream(loader)
    return None


# Errors that `_convert_column` raises again with another message. A subclass may take
# other arguments than a message, as UnicodeDecodeError does; it becomes a ValueError.
_RERAISED_TYPES = (TypeError, ValueError, errors.InvalidArgumentError)


def _types(features: Any) -> dict[str, Any]:
    """Returns the Arrow type of each column, without those that `datasets` decodes."""
    kinds = {field.name: field.type for field in features.arrow_schema}
    return {name: kinds[name] for name in features if not _is_decoded(features[name])}


def _row(given: object, kinds: Mapping[str, Any]) -> object:
    """Returns one example, made of Python values.

    Args:
        given: the example as `datasets` returns it.
        kinds: the Arrow types of the columns that have one.

    Raises:
        ValueError: a value is missing, or is no array.
    """
    if not isinstance(given, Mapping):
        return _convert_value(given)
    return {name: _value(v, repr(name), kinds.get(name)) for name, v in given.items()}


def _value(value: object, name: str, kind: object) -> object:
    """Returns one value of an example as an array, in its Arrow type if it has one."""
    if kind is None:
        return _convert_column(name, value, _convert_value)
    pyarrow = sys.modules["pyarrow"]  # `datasets` has loaded it.
    column = _convert_column(name, [value], lambda v: pyarrow.array(v, kind))
    return elements.map_leaves(lambda x: x[0], _array(column, name))


def _batch(given: object) -> Any:
    """Returns several examples whose columns have types that only the values tell.

    Raises:
        ValueError: a value is no array.
        InvalidArgumentError: the examples have different shapes.
    """
    if not isinstance(given, Mapping):
        return _convert_value(given)
    return {
        name: _convert_column(repr(name), v, _convert_values)
        for name, v in given.items()
    }


def _arrays(table: Any) -> dict[str, Any]:
    """Returns the rows of an Arrow table as one array per column.

    Raises:
        ValueError: a value is missing, or is no array.
        InvalidArgumentError: the rows have different shapes.
    """
    found = zip(table.column_names, table.columns, strict=True)
    return {name: _array(c.combine_chunks(), repr(name)) for name, c in found}


def _spec(table: Any) -> dict[str, Any]:
    """Returns the specs of the rows of an Arrow table; the sizes of lists are None."""
    made: dict[str, Any] = elements.map_leaves(
        lambda x: specs.TensorSpec((None,) * (x.ndim - 1), x.dtype), _arrays(table[:0])
    )
    return made


def _is_decoded(feature: object) -> bool:
    """Whether `datasets` decodes a feature when it is read, as it does images."""
    if isinstance(feature, Mapping):
        return any(map(_is_decoded, feature.values()))
    inner = (
        feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    )
    if inner is not None:
        return _is_decoded(inner)
    return hasattr(feature, "decode_example") and getattr(feature, "decode", True)


class _UnequalLengthsError(Exception):
    """Raised for lists of different lengths, which make no array."""


def _array(column: Any, name: str, is_whole: bool = True) -> object:
    """Returns an Arrow column as one array, or as a dict of arrays.

    Args:
        column: the values.
        name: the name of the column, for errors.
        is_whole: whether each value is a row, and not a part of one.
    """
    # An extension type, such as `Array2D`, wraps an ordinary column.
    column = getattr(column, "storage", column)
    if column.null_count:
        raise ValueError(
            f"The column {name} has a row without a value (null), which no array can "
            "hold. Fill it with table.map, or leave such rows out with table.filter."
        )
    # Only arrays of lists have `value_lengths`, and only arrays of structs `field`.
    if hasattr(column, "value_lengths"):
        return _lists(column, name, is_whole)
    if hasattr(column, "field"):
        fields = zip(column.type, column.flatten(), strict=True)
        return {
            f.name: _array(part, f"{name}[{f.name!r}]", is_whole) for f, part in fields
        }
    found = column.to_numpy(zero_copy_only=False)
    if found.dtype.kind in "mM":  # Dates, which no device has.
        return _convert_column(name, column.to_pylist(), _convert_values)
    # A copy: the memory of Arrow's array is the table itself.
    return _convert_column(name, np.array(found), elements.convert)


def _lists(column: Any, name: str, is_whole: bool) -> object:
    """Returns a column of lists as one array."""
    sizes = set(column.value_lengths().to_pylist())
    try:
        if len(sizes) > 1:
            raise _UnequalLengthsError
        inner = _array(column.flatten(), name, False)
    except _UnequalLengthsError:
        if not is_whole:
            raise
        raise _uneven_error(column, name) from None
    size = sizes.pop() if sizes else 0
    return elements.map_leaves(
        lambda x: x.reshape(len(column), size, *x.shape[1:]), inner
    )


def _uneven_error(column: Any, name: str) -> Exception:
    """Returns the error for uneven lists: within a row, or from row to row."""
    shapes: set[tuple[int, ...]] = set()
    for index in range(len(column)):
        try:
            found = _lists(column.slice(index, 1), name, False)
        except _UnequalLengthsError:
            return ValueError(
                f"A row of the column {name} is no array: the lists in it have "
                "different lengths. Make them equal with table.map."
            )
        shapes.update(x.shape[1:] for x in elements.leaves(found))
    return errors.InvalidArgumentError(
        f"Cannot batch the column {name}, whose rows have different shapes: "
        f"{', '.join(map(str, sorted(shapes, key=str)))}. Use padded_batch, or make "
        "the shapes equal with map."
    )


def _convert_value(value: object) -> object:
    """Returns a value of a type that only the value tells, as an element."""
    return loader_structures.to_element(value)


def _convert_values(values: object) -> object:
    """Returns a column of a type that only the values tell."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        values = list(values)
    if isinstance(values, list):
        return elements.stack([_convert_value(v) for v in values])
    return _convert_value(values)


def _convert_column(name: str, value: object, convert: Callable[[Any], Any]) -> object:
    """Converts a value, and names the column in the error if that fails."""
    try:
        return convert(value)
    except (TypeError, ValueError) as e:
        kind = type(e) if type(e) in _RERAISED_TYPES else ValueError
        raise kind(f"In the column {name}: {e}") from e
