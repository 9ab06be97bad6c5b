"""Describes a plan in a few words."""

from __future__ import annotations

from unisono._src.input.plan import nodes
from unisono._src.input.stages import batching, file_listing, selecting

# Several datasets that are mixed are only counted if their text would be longer.
_LONG_MIX = 100


def count_words(count: int, what: str) -> str:
    """Returns a number of things in words.

    >>> count_words(1, "global batch"), count_words(2000, "step")
    ('1 global batch', '2,000 steps')
    """
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {what}{'es' if what.endswith('ch') else 's'}"


def text(node: nodes.Node) -> str:
    """Returns the steps of a plan from its source to its end, in one line."""
    if isinstance(node, batching.Opaque):
        # This node changes what is known about the batches before it, not the batches.
        return text(node.parent)
    if len(node.parents) == 1:
        return f"{text(node.parents[0])} → {_name(node)}"
    if not node.parents:
        return _name(node)
    inner = ", ".join(map(text, node.parents))
    if len(inner) > _LONG_MIX:
        inner = count_words(len(node.parents), "dataset")
    return f"{node}[{inner}]"


def _name(node: nodes.Node) -> str:
    """Returns the name of one node of a plan."""
    if isinstance(node, selecting.Shard) and node.shards == selecting.SHARD_HINT:
        return "Shard(SHARD_HINT)"
    if isinstance(node, file_listing.FILES):
        return f"{node.kind}({count_words(len(node.files), 'file')})"
    return str(node)
