"""Describes who reads what of a dataset: of split batches, or of single elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from unisono._src.input.description import report
from unisono._src.input.description.report import (
    InputDescription,
    InputRow,
    count_words,
)
from unisono._src.input.distribution import sharding_rule, steps
from unisono._src.input.plan import nodes
from unisono._src.input.stages import dataset_options, file_listing, mixing, selecting

Policy = dataset_options.AutoShardPolicy
# The most steps of a batch, and parts of a step, that the table lists.
_SHOWN_PARTS = 4


@final
class _BatchSplit:
    """A dataset whose batches are split, and the plan of each of its workers.

    Args:
        node: the plan that the user made.
        decision: how it is split.
        share: the replicas of this worker.
    """

    def __init__(
        self, node: nodes.Node, decision: sharding_rule.Decision, share: steps.Share
    ) -> None:
        self.node, self.decision, self.share = node, decision, share
        self.marks = sharding_rule.hints(node) if decision.kind == Policy.HINT else []
        # Whether there are several workers, and each reads batches of its own.
        self.is_shared = share.workers > 1 and decision.kind != Policy.DATA

    def plan(self, worker: int) -> nodes.Node:
        """Returns the plan that a worker reads."""
        workers = self.share.workers
        return sharding_rule.shard_for_worker(self.node, self.decision, workers, worker)

    def cuts(self, rows: int, worker: int) -> list[steps.Bounds]:
        """Returns the steps in which a worker takes a batch; see `steps.BatchSteps`."""
        if self.share.is_single:
            return [[(0, rows)]]
        share = self.share._replace(worker=worker)
        return steps.cuts(rows, share, self.decision.size, not self.is_shared)


def describe_batches(
    node: nodes.Node, decision: sharding_rule.Decision, share: steps.Share
) -> InputDescription:
    """Returns the description of a dataset whose global batches are split.

    Args:
        node: the plan that the user made.
        decision: how it is split.
        share: the replicas of this worker.
    """
    split = _BatchSplit(node, decision, share)
    plans = [split.plan(w) for w in range(share.workers)]
    rows = tuple(
        InputRow(
            w, _reads_text(split, w, p), _count_text(split, w, p), _parts_text(split, w)
        )
        for w, p in enumerate(plans)
    )
    told = [*_remainder_texts(split), "The split drops nothing."]
    told += report.dropped_texts(plans if split.is_shared else plans[:1], "worker")
    return InputDescription(
        report.plan_text(node),
        _rule_text(split),
        " ".join(told),
        rows,
        report.functions_text([node]),
    )


def _reads_text(split: _BatchSplit, worker: int, own: nodes.Node) -> str:
    """Returns what a worker reads, in words."""
    workers, kind = split.share.workers, split.decision.kind
    found = file_listing.find_files(own)
    told = report.files_texts(found)
    dealt = sharding_rule.file_nodes(split.node) if kind == Policy.FILE else []
    # The plan does not name the files that a function opens, so the elements that the
    # function is called with are told.
    openers = [n.fn for n in dealt if isinstance(n, mixing.Interleave)]
    for n in found.unnamed:
        if n.fn in openers:
            told.append(f"the files of {_elements_text(n.parent)}")
    if workers > 1:
        told += [report.slice_text(m.parent, workers, worker) for m in split.marks]
    keeps = " and keeps its chunks" if workers > 1 and kind == Policy.DATA else ""
    return f"{'; '.join(told) or 'every example'}{keeps}"


def _elements_text(node: nodes.Node) -> str:
    """Returns which elements of a plan of file names a worker reads, in words."""
    if isinstance(node, selecting.Shard):
        return report.slice_text(node.parent, node.shards, node.index)
    return f"every element of {report.plan_text(node)}"


def _count_text(split: _BatchSplit, worker: int, own: nodes.Node) -> str:
    """Returns how many batches, examples and steps a worker has, in words."""
    batched = any(isinstance(n, sharding_rule.BATCHES) for n in nodes.walk(own))
    if split.share.is_single and not batched:
        return report.count_text(own.cardinality, "element")
    told = report.count_text(own.cardinality, "global batch")
    sizes = report.batch_sizes(own) if own.cardinality >= 0 else None
    if sizes is None:
        return told
    # Steps that the batches make, and examples that the worker keeps and reads.
    made = kept = read = 0
    for rows, count in sizes.items():
        cuts = split.cuts(rows, worker)
        made += count * len(cuts)
        kept += count * sum(b - a for step in cuts for a, b in step)
        read += count * rows
    some = f"{kept:,} of " if kept != read else ""
    told = f"{told}, {some}{count_words(read, 'example')}"
    return f"{told}, {count_words(made, 'step')}" if split.is_shared else told


def _parts_text(split: _BatchSplit, worker: int) -> str:
    """Returns which rows of a batch the replicas of a worker get, in words."""
    if split.share.is_single:
        return "all"
    size = split.decision.size or sharding_rule.declared_batch_size(split.node)
    if size is None:
        return f"1/{split.share.replicas} of each batch"
    cuts, told = split.cuts(size, worker), []
    for bounds in cuts[:_SHOWN_PARTS]:
        rows = ", ".join(f"[{a}:{b}]" for a, b in bounds[:_SHOWN_PARTS])
        told.append(f"{rows}{', …' * (len(bounds) > _SHOWN_PARTS)}")
    more = ", then …" * (len(cuts) > _SHOWN_PARTS)
    return f"rows {', then '.join(told)}{more} of {size}"


def _rule_text(split: _BatchSplit) -> str:
    """Returns how batches are split, in words."""
    if split.share.is_single:
        return "One replica: elements are not split."
    decision = split.decision
    told = f"The policy is {decision.kind.name}. "
    if decision.policy == Policy.AUTO:
        has = "there are files to deal" if decision.kind == Policy.FILE else "no files"
        told = f"AUTO means {decision.kind.name} here: {has}. "
    if decision.size is None:
        told += "Every global batch is cut into consecutive chunks of "
        told += f"ceil(size / {split.share.replicas})"
    else:
        told += f"Parts of fixed sizes, from a global batch of {decision.size}, are "
        told += "filled in order"
    if split.is_shared:
        told += (
            ", and each worker takes a batch of its own in as many steps as it needs"
        )
    return f"{told}."


def _remainder_texts(split: _BatchSplit) -> list[str]:
    """Returns sentences on what happens to batches that do not divide."""
    if split.share.is_single:
        return []
    told = ["A smaller batch leaves the last replicas short or empty."]
    if split.is_shared:
        told.append(
            "Workers without data get empty parts until the one with the most has "
            "finished."
        )
    kind = split.decision.kind
    if split.is_shared and kind != Policy.FILE and not split.marks:
        told.append(
            f"{kind.name} does not shard: every example comes {split.share.workers} "
            "times, once from each worker, if all made the same dataset."
        )
    return told


def describe_elements(
    given: Sequence[nodes.Node], share: steps.Share, drops: bool, look: bool = True
) -> InputDescription:
    """Returns the description of datasets that a function made.

    Args:
        given: the plan of this worker, or one for each replica.
        share: the replicas of this worker.
        drops: whether a last step with too few elements is dropped in any case.
        look: whether an element may be looked at where the plan tells too little.
    """
    is_each = len(given) > 1
    takers = 1 if is_each else share.local
    totals = [n.cardinality for n in given]
    # Other workers have datasets of their own, whose length is not known here.
    lacks = share.workers > 1 or _may_lack(totals, takers)
    fixed: bool | None = drops
    if lacks and not drops and share.workers == 1:
        fixed = sharding_rule.is_fixed(given[0], look)
    made = _steps_text(totals, takers, fixed)
    rows = []
    for number, node in enumerate(given):
        whose = f"for replica {number}: " if is_each else ""
        reads = report.files_texts(file_listing.find_files(node)) or ["its own dataset"]
        count = report.count_text(node.cardinality, "element") + made
        parts = f"{whose}one element of the dataset"
        rows.append(InputRow(share.worker, whose + reads[0], count, parts))
    rule = "Elements are not split: each replica takes the next one."
    if share.workers > 1:
        rule += " The other workers have datasets of their own."
    told = [_ending_text(fixed) if lacks else "No step lacks elements."]
    told += report.dropped_texts(given, "replica")
    texts = dict.fromkeys(map(report.plan_text, given))
    return InputDescription(
        " | ".join(texts),
        rule,
        " ".join(told),
        tuple(rows),
        report.functions_text(given),
    )


def _may_lack(totals: Sequence[int], takers: int) -> bool:
    """Whether some replicas may find no element where others do."""
    if len(set(totals)) > 1:
        return True
    if totals[0] == nodes.UNKNOWN:
        return len(totals) > 1 or takers > 1
    return totals[0] >= 0 and totals[0] % takers != 0


def _steps_text(totals: Sequence[int], takers: int, fixed: bool | None) -> str:
    """Returns how many steps there are, in words; "" if that is not known."""
    if fixed is None or min(totals) < 0:
        return ""
    made = min(totals) // takers if fixed else -(-max(totals) // takers)
    return f", {count_words(made, 'step')}"


def _ending_text(fixed: bool | None) -> str:
    """Returns a sentence on elements that are too few for a step."""
    if fixed is None:
        return (
            "A step that lacks elements gives empty batches if sizes may vary, and is "
            "dropped if they are fixed; describe() looks at an element and tells which."
        )
    if fixed:
        return (
            "The steps end where a replica finds no more element; what the others have "
            "left is dropped."
        )
    return (
        "Replicas that find no more element get empty batches until all have finished."
    )
