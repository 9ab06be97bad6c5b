"""Who reads what of a dataset whose global batches are split."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, final

from unisono._src.input.description import counts, plan_text, report
from unisono._src.input.description.plan_text import plural
from unisono._src.input.description.report import InputDescription, InputRow
from unisono._src.input.distribution import sharding_rule, steps
from unisono._src.input.plan import nodes
from unisono._src.input.stages import dataset_options, file_listing, mixing, selecting

Policy = dataset_options.AutoShardPolicy
_SHOWN = 4
_OWN_BATCHES = (
    ", and each worker takes a batch of its own in as many steps as that needs"
)


@final
class _Split:
    """What the plans tell about a dataset whose batches are split.

    Args:
        node: the plan that the user made.
        decision: how it is split.
        share: of this worker.
    """

    def __init__(
        self, node: nodes.Node, decision: sharding_rule.Decision, share: steps.Share
    ) -> None:
        self.node, self.decision, self.share = node, decision, share
        self.size = decision.size
        self.marks = sharding_rule.hints(node) if decision.kind == Policy.HINT else []
        self.shares = [share._replace(worker=w) for w in range(share.workers)]
        self.plans = [
            sharding_rule.share_of(node, decision, s.workers, s.worker)
            for s in self.shares
        ]
        self.sizes = [
            counts.sizes(p) if p.cardinality >= 0 else None for p in self.plans
        ]

    @functools.cached_property
    def openers(self) -> list[Any]:
        """The functions that open the files that are dealt."""
        if self.decision.kind != Policy.FILE:
            return []
        found = sharding_rule.file_nodes(self.node)
        return [n.fn for n in found if isinstance(n, mixing.Interleave)]

    @property
    def is_shared(self) -> bool:
        """Whether several workers read batches of their own."""
        return self.share.workers > 1 and self.decision.kind != Policy.DATA

    @property
    def is_repeated(self) -> bool:
        """Whether every worker reads everything and keeps it."""
        kind = self.decision.kind
        return self.is_shared and kind != Policy.FILE and not self.marks

    def cuts(self, rows: int, share: steps.Share) -> list[steps.Bounds]:
        """The steps in which a worker takes a batch; see `steps.Cut`."""
        if share.is_single:
            return [[(0, rows)]]
        return steps.cuts(rows, share, self.size, not self.is_shared)

    def totals(self, worker: int) -> tuple[int, int, int] | None:
        """Steps, examples that are kept, and examples that are read."""
        sizes = self.sizes[worker]
        if sizes is None:
            return None
        made = kept = 0
        for rows, count in sizes.runs:
            cuts = self.cuts(rows, self.shares[worker])
            made += count * len(cuts)
            kept += count * sum(b - a for step in cuts for a, b in step)
        return made, kept, sizes.examples


def describe_batches(
    node: nodes.Node, decision: sharding_rule.Decision, share: steps.Share
) -> InputDescription:
    """The description of a dataset whose global batches are split."""
    split = _Split(node, decision, share)
    rows = tuple(
        InputRow(w, _reads(split, w), _count(split, w), _parts(split, w))
        for w in range(share.workers)
    )
    dropped = report.dropped(split.plans, split.is_shared)
    remainder = " ".join([*_remainder(split), *dropped])
    return InputDescription(plan_text.text(node), _rule(split), remainder, rows)


def _reads(split: _Split, worker: int) -> str:
    own, several = split.plans[worker], split.share.workers > 1
    found = file_listing.reading(own)
    told = [report.files(found.files, found.is_shuffled)] if found.files else []
    told += [_unnamed(n.parent) for n in found.unnamed if n.fn in split.openers]
    if several:
        marks = [m.parent for m in split.marks]
        told += [report.picked(n, split.share.workers, worker) for n in marks]
    if several and split.decision.kind == Policy.DATA:
        return f"{'; '.join(told) or 'every example'} and keeps its chunks"
    return "; ".join(told) or "every example"


def _unnamed(node: nodes.Node) -> str:
    if isinstance(node, selecting.Shard):
        return f"the files of {report.picked(node.parent, node.shards, node.index)}"
    return f"the files of every element of {plan_text.text(node)}"


def _count(split: _Split, worker: int) -> str:
    own = split.plans[worker]
    batched = any(isinstance(n, sharding_rule.BATCHES) for n in nodes.walk(own))
    whole = split.share.is_single and not batched
    unit = "element" if whole else "global batch"
    told = [report.counted(own.cardinality, unit)]
    totals = split.totals(worker)
    if totals is None or whole:
        return told[0]
    made, kept, read = totals
    some = f"{kept:,} of " if kept != read else ""
    told.append(f"{some}{plural(read, 'example')}")
    if split.is_shared:
        told.append(plural(made, "step"))
    return ", ".join(told)


def _parts(split: _Split, worker: int) -> str:
    share = split.shares[worker]
    if share.is_single:
        return "all"
    size = split.size or sharding_rule.walked_batch_size(split.node)
    if size is None:
        return f"1/{share.replicas} of each batch"
    cuts = split.cuts(size, share)
    if len(cuts) == 1 and split.size is None:
        bounds = cuts[0]
        rows = ", ".join(f"[{a}:{b}]" for a, b in bounds[:_SHOWN])
        more = ", …" if len(bounds) > _SHOWN else ""
        return f"rows {rows}{more} of {size}"
    told = [report.numbers([b - a for a, b in step]) for step in cuts[:_SHOWN]]
    more = ", then …" if len(cuts) > _SHOWN else ""
    return f"{', then '.join(told)}{more} of {size}"


def _rule(split: _Split) -> str:
    replicas = split.share.replicas
    if split.share.is_single:
        return "One replica: elements are not split."
    if split.size is None:
        told = "Every global batch is cut into consecutive chunks of ceil(size / "
        told += f"{replicas})"
        return f"{told}{_OWN_BATCHES if split.is_shared else ''}."
    told = (
        f"Parts of fixed sizes, from a global batch of {split.size}, are filled in "
        "order"
    )
    return f"{told}{_OWN_BATCHES if split.is_shared else ''}."


def _remainder(split: _Split) -> Iterator[str]:
    if not split.share.is_single:
        yield from _smaller(split)
    if split.is_shared:
        yield from _several(split)
    if any(counts.dropped(p) or counts.may_drop_unseen(p) for p in split.plans):
        yield "The split drops nothing."
    else:
        yield "Nothing is dropped."


def _smaller(split: _Split) -> Iterator[str]:
    """What becomes of a batch that is not full."""
    sizes = split.sizes[split.share.worker]
    full = split.size or sharding_rule.walked_batch_size(split.node)
    if sizes is not None and all(rows == full for rows, _ in sizes.runs):
        return
    if full is not None and sharding_rule.drops_smaller(split.node):
        return
    if split.size is None:
        yield (
            "A smaller batch gives smaller chunks, and empty ones to the last replicas."
        )
    else:
        yield "A smaller batch leaves the last replicas short or empty."
    if sizes is None or split.is_shared:
        return
    for rows in sorted({rows for rows, _ in sizes.runs if rows != full}):
        parts = [part for s in split.shares for part in split.cuts(rows, s)[0]]
        found = report.numbers([b - a for a, b in parts])
        yield f"A batch of {rows} gives the replicas {found}."


def _several(split: _Split) -> Iterator[str]:
    """What several workers with batches of their own make of them."""
    totals = [split.totals(w) for w in range(split.share.workers)]
    known = [t[0] for t in totals if t is not None]
    if len(known) == len(totals) and len(set(known)) == 1:
        yield f"All workers make {plural(known[0], 'step')}."
    else:
        most = f": {plural(max(known), 'step')}" if len(known) == len(totals) else ""
        yield (
            "Workers without data get empty parts until the one with the most has "
            f"finished{most}."
        )
    if not split.is_repeated:
        return
    yield (
        f"{split.decision.kind.name} does not shard: every example comes "
        f"{split.share.workers} times, once from each worker, if all made the same "
        "dataset."
    )
