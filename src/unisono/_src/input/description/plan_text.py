"""A plan in a few words."""

from __future__ import annotations

from unisono._src.input.plan import nodes
from unisono._src.input.stages import (
    batching,
    choose_by_dataset,
    file_listing,
    resampling,
    selecting,
)

# Longer texts of several datasets that are mixed, and of a whole plan, are cut.
_LONG_MIX = 100
_LONG = 200
_ENDS = 3


def plural(count: int, what: str) -> str:
    """A number of things.

    >>> plural(1, "global batch"), plural(2000, "step")
    ('1 global batch', '2,000 steps')
    """
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {what}{'es' if what.endswith('ch') else 's'}"


def text(node: nodes.Node) -> str:
    """The plan from its source to its end; the middle of a long one is left out."""
    names: list[str] = []
    end: nodes.Node | None = node
    while end is not None:
        # It changes what is known about the batch in front of it, not the batch.
        if not isinstance(end, batching.Opaque):
            names.append(_name(end))
        end = _before(end)
    names.reverse()
    told = " → ".join(names)
    between = len(names) - 2 * _ENDS
    if len(told) <= _LONG or between < 2:
        return told
    left_out = f"… {plural(between, 'step')} …"
    return " → ".join([*names[:_ENDS], left_out, *names[-_ENDS:]])


def _before(node: nodes.Node) -> nodes.Node | None:
    if _resamples(node):
        return node.parents[0].parents[0]
    return node.parents[0] if len(node.parents) == 1 else None


def _name(node: nodes.Node) -> str:
    if _resamples(node):
        return "RejectionResample"
    if isinstance(node, selecting.Shard) and node.shards == selecting.SHARD_HINT:
        return "Shard(SHARD_HINT)"
    if isinstance(node, file_listing.FILES):
        return f"{node.kind}({plural(len(node.files), 'file')})"
    if len(node.parents) < 2:
        return str(node)
    inner = ", ".join(text(p) for p in node.parents)
    if len(inner) > _LONG_MIX:
        inner = plural(len(node.parents), "dataset")
    return f"{node}[{inner}]"


def _resamples(node: nodes.Node) -> bool:
    """Whether this is the end of what `rejection_resample` is made of."""
    if not isinstance(node, choose_by_dataset.Choose):
        return False
    fn = getattr(node.choices, "fn", None)
    owner = getattr(fn, "__self__", None)
    return isinstance(owner, resampling.Resampler)
