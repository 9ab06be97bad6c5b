"""Counts the examples that a plan gives and drops, as far as the plan tells."""

from __future__ import annotations

from typing import Any

from unisono._src.input.description.plan_text import count_words
from unisono._src.input.plan import elements, nodes
from unisono._src.input.stages import (
    batching,
    caching,
    dataset_options,
    mapping,
    prefetch,
    selecting,
    shuffling,
)

# The nodes that give every element that they read, once in a pass.
_GIVE_ALL = (
    prefetch.Prefetch,
    dataset_options.WithOptions,
    batching.Opaque,
    selecting.AssertCardinality,
    caching.Cache,
    shuffling.Shuffle,
)


def batch_sizes(node: nodes.Node) -> dict[int, int] | None:
    """Returns the number of batches of each size; None if the plan does not tell."""
    if isinstance(node, batching.Batching) and node.parent.cardinality >= 0:
        full, rest = divmod(node.parent.cardinality, node.size)
        return {node.size: full} | ({} if node.drop or not rest else {rest: 1})
    if isinstance(node, _GIVE_ALL):
        return batch_sizes(node.parent)
    if isinstance(node, selecting.Repeat) and node.count >= 0:
        once = batch_sizes(node.parent)
        # None, which means unknown, stays None.
        return once and {rows: count * node.count for rows, count in once.items()}
    size = _common_batch_size(node)
    return None if size is None or node.cardinality < 0 else {size: node.cardinality}


def _common_batch_size(node: nodes.Node) -> int | None:
    """Returns the size of every batch, if the plan tells that all have the same."""
    if isinstance(node, batching.Batching):
        total = node.parent.cardinality
        is_even = total >= 0 and total % node.size == 0
        return node.size if node.drop or is_even or total == nodes.INFINITE else None
    if isinstance(node, nodes.Selecting):
        return _common_batch_size(node.parent)
    if node.parents or not nodes.tells_spec(node):
        return None
    rows = {s.shape[0] if s.shape.rank else None for s in elements.leaves(node.spec)}
    return rows.pop() if len(rows) == 1 else None


def dropped_text(node: nodes.Node) -> str:
    """Returns in words what `drop_remainder` drops in a plan; "" if nothing."""
    drops: list[Any] = [n for n in nodes.walk(node) if getattr(n, "drop", False)]
    if not drops:
        return ""
    last: Any = node
    is_again = False
    while isinstance(last, (*_GIVE_ALL, mapping.Map, selecting.Repeat)):
        is_again |= isinstance(last, selecting.Repeat)
        last = last.parent
    is_known = isinstance(last, batching.Batching) and drops == [last]
    if not is_known or last.parent.cardinality == nodes.UNKNOWN:
        size = max(max(n.sizes) if hasattr(n, "sizes") else n.size for n in drops)
        return f"what does not fill a batch of {size}"
    # Every batch of an endless dataset is full, so nothing is dropped.
    rest = max(last.parent.cardinality, 0) % last.size
    return (
        f"{count_words(rest, 'example')}{' in every pass' * is_again}" if rest else ""
    )
