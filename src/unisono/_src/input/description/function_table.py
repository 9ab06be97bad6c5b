"""Describes who reads what of datasets that a function made."""

from __future__ import annotations

from collections.abc import Sequence

from unisono._src.input.description import plan_text, report
from unisono._src.input.description.plan_text import count_words
from unisono._src.input.description.report import InputDescription, InputRow
from unisono._src.input.distribution import sharding_rule, steps
from unisono._src.input.plan import nodes
from unisono._src.input.stages import file_listing


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
    texts = dict.fromkeys(map(plan_text.text, given))
    return InputDescription(" | ".join(texts), rule, " ".join(told), tuple(rows))


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
