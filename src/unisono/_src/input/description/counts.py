"""How many batches and examples a plan gives, as far as it tells before it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from unisono._src.input.plan import elements, nodes
from unisono._src.input.stages import (
    asserting,
    batching,
    cache_files,
    cache_memory,
    carried_options,
    file_listing,
    filtering,
    grouping,
    mapping,
    mixing,
    prefetch,
    selecting,
    shuffling,
)

_SAME = (
    prefetch.Prefetch,
    carried_options.WithOptions,
    batching.Opaque,
    asserting.AssertCardinality,
    cache_memory.Cache,
)
# More than anyone counts: the batches of something endless.
_MANY = 1 << 62


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How many examples the elements of a plan have.

    Attributes:
        runs: pairs of examples per batch, and how many such batches there are.
        is_ordered: whether they come in this order.
    """

    runs: tuple[tuple[int, int], ...]
    is_ordered: bool = True

    @property
    def batches(self) -> int:
        """How many there are."""
        return sum(count for _, count in self.runs)

    @property
    def examples(self) -> int:
        """How many are in them."""
        return sum(rows * count for rows, count in self.runs)

    @property
    def is_uniform(self) -> bool:
        """Whether all have one size."""
        return len({rows for rows, _ in self.runs}) < 2

    def between(self, start: int, stop: int) -> Sizes | None:
        """Some that follow each other; None if the order is not known."""
        if not (self.is_ordered or self.is_uniform):
            return None
        found, at = [], 0
        for rows, count in self.runs:
            some = min(stop, at + count) - max(start, at)
            if some > 0:
                found.append((rows, some))
            at += count
        return Sizes(tuple(found))

    def every(self, shards: int, index: int) -> Sizes | None:
        """Those of one shard; None if the order is not known."""
        if shards < 1 or not (self.is_ordered or self.is_uniform):
            return None
        found, at = [], 0
        for rows, count in self.runs:
            some = len(range((index - at) % shards, count, shards))
            if some:
                found.append((rows, some))
            at += count
        return Sizes(tuple(found))


def sizes(node: nodes.Node) -> Sizes | None:
    """The sizes of the batches that a plan gives; None if it does not tell them."""
    if isinstance(node, batching.Batching):
        return _batched(node)
    if isinstance(node, _SAME):
        return sizes(node.parent)
    if isinstance(node, nodes.Selecting):
        inner = sizes(node.parent)
        return None if inner is None else _selected(node, inner)
    if isinstance(node, (mixing.Zip, mixing.Concatenate)):
        return _mixed(node, [sizes(n) for n in node.inputs])
    if node.parents or node.cardinality < 0 or not nodes.tells_spec(node):
        return None
    rows = {s.shape[0] if s.shape else None for s in elements.leaves(node.spec)}
    size = rows.pop() if len(rows) == 1 else None
    return None if size is None else Sizes(((size, node.cardinality),))


def _batched(node: batching.Batching) -> Sizes | None:
    total = node.parent.cardinality
    if total == nodes.INFINITE:
        return Sizes(((node.size, _MANY),))
    if total < 0:
        return None
    full, rest = divmod(total, node.size)
    runs = [(node.size, full)] if full else []
    if rest and not node.drop:
        runs.append((rest, 1))
    return Sizes(tuple(runs))


def _selected(node: Any, inner: Sizes) -> Sizes | None:
    if isinstance(node, shuffling.Shuffle):
        return dataclasses.replace(inner, is_ordered=False)
    if isinstance(node, selecting.Take):
        return inner if node.count < 0 else inner.between(0, node.count)
    if isinstance(node, selecting.Skip):
        return inner.between(node.count if node.count >= 0 else _MANY, _MANY)
    if isinstance(node, selecting.Shard):
        return inner.every(node.shards, node.index)
    if isinstance(node, selecting.Repeat) and node.count != 1:
        times = node.count if node.count >= 0 else _MANY
        runs = tuple((rows, count * times) for rows, count in inner.runs)
        return Sizes(runs if times else (), False)
    return inner if isinstance(node, selecting.Repeat) else None


def _mixed(node: Any, parts: Sequence[Sizes | None]) -> Sizes | None:
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if isinstance(node, mixing.Concatenate):
        runs = tuple(run for p in known for run in p.runs)
        return Sizes(runs, all(p.is_ordered for p in known))
    least = min(p.batches for p in known)
    cut = {p.between(0, least) for p in known}
    return cut.pop() if len(cut) == 1 else None


@dataclasses.dataclass(frozen=True)
class Dropped:
    """What `drop_remainder` drops.

    Attributes:
        size: of the batch that is not filled.
        count: how many examples; None if that is known only at the end.
        is_each_pass: whether they are dropped again and again.
    """

    size: int
    count: int | None
    is_each_pass: bool = False


_COUNTS = (
    nodes.Selecting,
    mapping.Map,
    filtering.Filter,
    batching.Batching,
    batching.Rebatch,
    batching.Unbatch,
    mixing.Concatenate,
    cache_files.FileCache,
)


def dropped(node: nodes.Node) -> list[Dropped]:
    """What `drop_remainder` drops wherever it stands in a plan."""
    return [d for d in _dropped(node, 1) if d.count != 0]


def _dropped(node: nodes.Node, times: int | None) -> Iterator[Dropped]:
    """As above; `times` is how often it is read, -1 for ever, None if not known."""
    if getattr(node, "drop", False):
        yield _dropped_by(node, times)
    for parent in node.parents:
        yield from _dropped(parent, _times(node, times))


def _dropped_by(node: Any, times: int | None) -> Dropped:
    if isinstance(node, batching.Rebatch):
        return Dropped(max(node.sizes), None)
    total = node.parent.cardinality
    if total == nodes.INFINITE:
        return Dropped(node.size, 0)
    if not isinstance(node, batching.Batching) or total < 0:
        return Dropped(node.size, None)
    rest = total % node.size
    if times is None:
        return Dropped(node.size, None if rest else 0)
    return Dropped(node.size, rest * abs(times), times < 0)


def _times(node: nodes.Node, times: int | None) -> int | None:
    if times is None or not isinstance(node, _COUNTS):
        return None
    if isinstance(node, selecting.Take):
        inner = node.parent.cardinality
        return times if node.count < 0 or 0 <= inner < node.count else None
    if isinstance(node, selecting.Repeat):
        return -1 if node.count < 0 or times < 0 else times * node.count
    return times


def may_drop_unseen(node: nodes.Node) -> bool:
    """Whether datasets that a function makes may drop something."""
    for n in nodes.walk(node):
        if isinstance(n, grouping.GroupByWindow):
            return True
        if isinstance(n, mixing.Interleave):
            inner = file_listing.made(n)
            if inner is None or _drops(inner):
                return True
    return False


def _drops(node: nodes.Node) -> bool:
    return any(getattr(n, "drop", False) for n in nodes.walk(node))
