"""Who reads what of datasets that a function made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unisono._src.input.description import plan_text, report
from unisono._src.input.description.plan_text import plural
from unisono._src.input.description.report import InputDescription, InputRow
from unisono._src.input.distribution import sharding_rule, steps
from unisono._src.input.plan import nodes
from unisono._src.input.stages import file_listing


def describe_elements(
    given: Sequence[nodes.Node], share: steps.Share, drops: bool, look: bool = True
) -> InputDescription:
    """The description of datasets that a function made.

    Args:
        given: the plan of this worker, or one for each replica.
        share: of this worker.
        drops: whether a last step with too few elements is dropped in any case.
        look: whether an element may be looked at where the plan tells too little.
    """
    node = given[0]
    fixed: bool | None = drops
    if not drops and share.workers == 1 and _may_lack(given, share):
        fixed = sharding_rule.is_fixed(node, look)
    if len(given) > 1:
        return _describe_replicas(given, share, fixed)
    reads = _reads(node)
    count = report.counted(node.cardinality, "element")
    if node.cardinality >= 0 and fixed is not None:
        made, left = divmod(node.cardinality, share.local)
        count += f", {plural(made + (left > 0 and not fixed), 'step')}"
    row = InputRow(share.worker, reads, count, "one element of the dataset")
    rule = "Elements are not split: each replica takes the next one."
    if share.workers > 1:
        rule += " The other workers have datasets of their own."
    told = [*_ending(node, share, fixed), *report.dropped([node], False)]
    return InputDescription(plan_text.text(node), rule, " ".join(told), (row,))


def _reads(node: nodes.Node) -> str:
    found = file_listing.reading(node)
    if not found.files:
        return "its own dataset"
    return report.files(found.files, found.is_shuffled)


def _may_lack(given: Sequence[nodes.Node], share: steps.Share) -> bool:
    """Whether some replicas may find no element where others do."""
    totals = {n.cardinality for n in given}
    if len(given) > 1:
        return len(totals) > 1 or nodes.UNKNOWN in totals
    total = totals.pop()
    if total == nodes.INFINITE or share.local == 1:
        return False
    return total == nodes.UNKNOWN or total % share.local != 0


def _ending(node: nodes.Node, share: steps.Share, fixed: bool | None) -> Iterator[str]:
    """What becomes of elements that are too few for a step."""
    total, local = node.cardinality, share.local
    left = total % local if total >= 0 else None
    if _may_lack([node], share):
        yield _last_step(left, local - (left or 0), fixed)
    elif share.workers == 1:
        yield "No step lacks elements."
    if share.workers > 1:
        yield (
            "The steps end with the first worker that lacks elements; what the others "
            "have left is dropped."
            if fixed
            else "A worker that has fewer elements than another gets empty batches "
            "until all have finished."
        )


def _last_step(left: int | None, lacking: int, fixed: bool | None) -> str:
    if fixed is None:
        return (
            "A last step with too few elements gives empty batches if sizes may vary, "
            "and is dropped if they are fixed; describe() looks at an element and "
            "tells which."
        )
    if fixed:
        some = "" if left is None else f", with {plural(left, 'element')}"
        return f"A last step with too few elements is dropped{some}."
    some = "" if left is None else f": {lacking} in the last step"
    return f"Replicas that find no more element get empty batches{some}."


def _describe_replicas(
    given: Sequence[nodes.Node], share: steps.Share, fixed: bool | None
) -> InputDescription:
    """The description of one dataset per replica."""
    rows = []
    for number, node in enumerate(given):
        reads = f"for replica {number}: {_reads(node)}"
        count = report.counted(node.cardinality, "element")
        what = f"replica {number}: one element of its own dataset"
        rows.append(InputRow(share.worker, reads, count, what))
    texts = list(dict.fromkeys(map(plan_text.text, given)))
    rule = "Elements are not split: each replica takes the next one of its dataset."
    told = [_uneven([n.cardinality for n in given], fixed)]
    for number, node in enumerate(given):
        dropped = report.dropped([node], False)
        told += [f"Replica {number}: {text}" for text in dropped]
    return InputDescription(" | ".join(texts), rule, " ".join(told), tuple(rows))


def _uneven(totals: Sequence[int], fixed: bool | None) -> str:
    """What becomes of what some replicas have more than others."""
    if len(set(totals)) == 1 and totals[0] != nodes.UNKNOWN:
        count = f": {plural(totals[0], 'step')}" if totals[0] >= 0 else ""
        return f"All replicas have as many{count}."
    known = all(n >= 0 for n in totals)
    if fixed is None:
        return (
            "A replica that has no element any more gets empty batches if sizes may "
            "vary, and ends the steps if they are fixed; describe() looks at an "
            "element and tells which."
        )
    if fixed:
        some = plural(sum(totals) - min(totals) * len(totals), "element")
        made = f", after {plural(min(totals), 'step')}; {some}" if known else "; what"
        return f"The steps end with the shortest{made} the others have left is dropped."
    made = f": {plural(max(totals), 'step')}" if known else ""
    return (
        "A replica that has no element any more gets empty batches until all have "
        f"finished{made}."
    )
