"""Makes a plan from tables and streams of Hugging Face `datasets`."""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
import sys
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from unisono._src.input.loaders import hugging_face_columns
from unisono._src.input.plan import cursors, elements, first_elements, nodes
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
        kinds = hugging_face_columns.types(table.features) if is_plain else {}
        # Columns that `datasets` decodes, such as images, have no Arrow type to go by.
        # They are read apart from the others, as Python values.
        typed = [name for name in self._names if name in kinds]
        others = [name for name in self._names if name not in kinds]
        self._arrow = table.with_format("arrow", columns=typed) if typed else None
        self._others = table.with_format(None, columns=others) if others else None

    def element_at(self, index: int) -> object:
        if self._arrow is None:
            return hugging_face_columns.row(self._table[int(index)], {})
        return elements.map_leaves(lambda x: x[0], self.slice(index, index + 1))

    def take(self, indices: np.ndarray, allocate: nodes.Allocate) -> object:
        return self._read([int(i) for i in indices])

    def slice(self, start: int, stop: int) -> object:
        return self._read(slice(int(start), int(stop)))

    def _read(self, key: Any) -> object:
        if self._arrow is None:
            return hugging_face_columns.batch(self._table[key])
        found = hugging_face_columns.arrays(self._arrow[key])
        if self._others is not None:
            found |= hugging_face_columns.batch(self._others[key])
        return {name: found[name] for name in self._names}


@final
class HuggingFaceTable(nodes.RowSource):
    """A source of the examples of a `datasets.Dataset`, to be batched."""

    source: Any

    # A property in place of the base class's constant, as only the instance knows.
    @functools.cached_property
    def samples_spec(self) -> bool:  # type: ignore[override]
        """Whether rows may differ in shape."""
        kinds = hugging_face_columns.types(self.source.features)
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
        return hugging_face_columns.spec(self.source.with_format("arrow"))

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
        return hugging_face_columns.types(features) if features else {}

    def convert(self, element: object) -> object:
        """Returns an example as arrays that no one else will change."""
        found = hugging_face_columns.row(element, self._kinds)
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
        element = nodes.first_element(self)
        if element is None:
            raise ValueError(
                "Cannot tell the element_spec of an empty stream: it has no examples. "
                "Give one that has at least one."
            )
        return elements.spec_of(element)


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
