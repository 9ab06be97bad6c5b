"""Tables and streams of Hugging Face `datasets`, as the source of a plan."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import logging
import sys
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from unisono._src.input.loaders import hugging_face_columns
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.sources import iterables

_LOG = logging.getLogger("unisono")


@final
class _Table:
    """A `datasets.Dataset`: rows by number."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._names = table.format["columns"]
        # With a format, the values have types already.
        is_plain = table.format["type"] is None
        kinds = hugging_face_columns.types(table.features) if is_plain else {}
        typed = [name for name in self._names if name in kinds]
        others = [name for name in self._names if name not in kinds]
        self._arrow = table.with_format("arrow", columns=typed) if typed else None
        self._others = table.with_format(None, columns=others) if others else None

    def at(self, index: int) -> Any:
        if self._arrow is None:
            return hugging_face_columns.row(self._table[int(index)], {})
        return elements.map_leaves(lambda x: x[0], self.slice(index, index + 1))

    def take(self, indices: np.ndarray, blank: nodes.Blank) -> Any:
        return self._read([int(i) for i in indices])

    def slice(self, start: int, stop: int) -> Any:
        return self._read(slice(int(start), int(stop)))

    def _read(self, key: Any) -> Any:
        if self._arrow is None:
            return hugging_face_columns.batch(self._table[key])
        found = hugging_face_columns.arrays(self._arrow[key])
        if self._others is not None:
            found |= hugging_face_columns.batch(self._others[key])
        return {name: found[name] for name in self._names}


@final
@dataclasses.dataclass(frozen=True, eq=False)
class HuggingFaceTable(nodes.Indexed):
    """A `datasets.Dataset`: examples, to be batched."""

    source: Any

    @functools.cached_property
    def samples_spec(self) -> bool:  # type: ignore[override]
        """Whether rows may differ in shape."""
        kinds = hugging_face_columns.types(self.source.features)
        is_decoded = len(kinds) < len(self.source.features)
        return is_decoded or any(s.shape for s in elements.leaves(self._empty_spec()))

    def cursor(self) -> cursors.Cursor:
        """Example after example."""
        return nodes.Lookup(self.rows(), self.indices())

    def rows(self) -> _Table:
        """By number."""
        return _Table(self.source)

    def indices(self) -> cursors.Cursor:
        """Every one."""
        return cursors.Count(len(self.source))

    @property
    def cardinality(self) -> int:
        """How many examples."""
        return len(self.source)

    def _spec(self) -> Any:
        if len(self.source):
            return elements.spec_of(self.rows().at(0))
        return self._empty_spec()

    def _empty_spec(self) -> Any:
        return hugging_face_columns.spec(self.source.with_format("arrow"))

    def __str__(self) -> str:
        return f"HuggingFace({len(self.source)})"


@final
class _Start:
    """Begins an iteration over a stream of its own.

    The one that the user has would tell the position of its last iteration, whichever
    that was.
    """

    def __init__(self, node: HuggingFaceStream) -> None:
        self._node = node
        self.stream: Any = None
        # Where, if not at the first example of the present epoch.
        self.position: Any = None
        self.epoch: int | None = None

    def __call__(self) -> Iterator[Any]:
        self.stream = _own(self._node.source)
        if self.epoch is not None:
            self.stream.set_epoch(self.epoch)
        if self.position is not None:
            self.stream.load_state_dict(self.position)
        return iterables.Elements(iter(self.stream), self._node._converted)


@final
class _Stream(cursors.Iterated):
    """A `datasets.IterableDataset`, which knows its position itself.

    With a shuffle buffer it does not; then it is read again from the beginning.
    """

    def __init__(self, node: HuggingFaceStream) -> None:
        self._node, self._start = node, _Start(node)
        super().__init__(self._start)

    def get_state(self) -> dict[str, Any]:
        start = self._start
        if self._iterator is None and start.position is not None:
            return {"passed": self._passed, "stream": start.position}
        if self._iterator is None or not self._node.tells_position:
            source = self._node.source
            epoch = source.epoch if start.epoch is None else start.epoch
            return {"epoch": epoch, "order": _order(source), **super().get_state()}
        return {"passed": self._passed, "stream": start.stream.state_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.close()
        start = self._start
        start.position, start.epoch = state.get("stream"), state.get("epoch")
        if start.position is not None:
            # In another epoch it would begin anew without a word.
            start.epoch = start.position["epoch"]
            self._passed, self._failed = state["passed"], 0
            return
        if state["order"] != _order(self._node.source):
            _LOG.warning(
                "Continuing in a Hugging Face stream that shuffles without a seed: its "
                "order is another one than before, so examples will be repeated and "
                "missed. Give shuffle(seed=...)."
            )
        super().set_state(state)


def _own(stream: Any) -> Any:
    """A stream over the same data, with a position and an epoch of its own."""
    own = object.__new__(type(stream))
    # Not `copy.copy`: the copy would have the same dict.
    own.__dict__.update(stream.__dict__)
    own._ex_iterable = _own_part(stream._ex_iterable)
    own._epoch = copy.deepcopy(stream._epoch)
    return own


def _is_part(x: Any) -> bool:
    return hasattr(x, "_init_state_dict")


def _own_part(part: Any) -> Any:
    own = object.__new__(type(part))
    own.__dict__.update(part.__dict__)
    for name, value in part.__dict__.items():
        if _is_part(value):
            own.__dict__[name] = _own_part(value)
        elif isinstance(value, list) and value and all(map(_is_part, value)):
            own.__dict__[name] = [_own_part(v) for v in value]
    return own


def _parts(part: Any) -> Iterator[Any]:
    """What a stream is made of, from its end to its sources."""
    yield part
    for value in part.__dict__.values():
        for inner in value if isinstance(value, list) else [value]:
            if _is_part(inner):
                yield from _parts(inner)


def _order(stream: Any) -> str | None:
    """Tells apart orders that were drawn; None if there is none."""
    drawn = [
        repr(part.generator.bit_generator.state)
        for part in _parts(stream._ex_iterable)
        if hasattr(part, "buffer_size")
    ]
    return hashlib.sha256("".join(drawn).encode()).hexdigest()[:16] if drawn else None


@final
@dataclasses.dataclass(frozen=True, eq=False)
class HuggingFaceStream(iterables.Loader):
    """A `datasets.IterableDataset`: examples, to be batched."""

    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """From the beginning."""
        return _Stream(self)

    @functools.cached_property
    def _kinds(self) -> dict[str, Any]:
        # With a format, the values have types already. Each look makes a copy.
        features = None if self.source._formatting else self.source.features
        return hugging_face_columns.types(features) if features else {}

    def _converted(self, element: Any) -> Any:
        found = hugging_face_columns.row(element, self._kinds)
        return elements.map_leaves(elements.owned, found)

    @property
    def tells_position(self) -> bool:
        """Whether its own positions are exact."""
        return hasattr(self.source, "state_dict") and _order(self.source) is None

    @property
    def is_batched(self) -> bool:
        """Whether `IterableDataset.batch` has made the rows."""
        return any(map(_is_batching, _parts(self.source._ex_iterable)))

    def _spec(self) -> Any:
        element = nodes.first(self)
        if element is None:
            raise ValueError("Cannot tell the element_spec of an empty stream.")
        return elements.spec_of(element)


def _is_batching(part: Any) -> bool:
    fn = getattr(part, "function", None)
    fn = getattr(fn, "func", fn)
    name, module = getattr(fn, "__name__", ""), getattr(fn, "__module__", "")
    return name.startswith("_batch") and module.startswith("datasets.")


def holds_examples(node: nodes.Node) -> bool:
    """Whether the elements of a source are rows of a table, each one example."""
    if isinstance(node, HuggingFaceStream):
        return not node.is_batched
    return isinstance(node, HuggingFaceTable)


def to_node(loader: Any) -> nodes.Node | None:
    """The plan of a table or a stream; None for anything else.

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
