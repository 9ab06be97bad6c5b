"""Describes who reads what of a dataset: of split batches, or of single elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

from unisono._src.foundation import tables
from unisono._src.input.distribution import sharding_rule, steps
from unisono._src.input.plan import elements, nodes
from unisono._src.input.stages import (
    batching,
    dataset_options,
    file_listing,
    mapping,
    mixing,
    selecting,
)

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
    told += _dropped_texts(plans if split.is_shared else plans[:1], "worker")
    return InputDescription(
        _plan_text(node),
        _rule_text(split),
        " ".join(told),
        rows,
        _functions_text([node]),
    )


def _reads_text(split: _BatchSplit, worker: int, own: nodes.Node) -> str:
    """Returns what a worker reads, in words."""
    workers, kind = split.share.workers, split.decision.kind
    found = file_listing.find_files(own)
    told = _files_texts(found)
    dealt = sharding_rule.file_nodes(split.node) if kind == Policy.FILE else []
    # The plan does not name the files that a function opens, so the elements that the
    # function is called with are told.
    openers = [n.fn for n in dealt if isinstance(n, mixing.Interleave)]
    for n in found.unnamed:
        if n.fn in openers:
            told.append(f"the files of {_elements_text(n.parent)}")
    if workers > 1:
        told += [_slice_text(m.parent, workers, worker) for m in split.marks]
    keeps = " and keeps its chunks" if workers > 1 and kind == Policy.DATA else ""
    return f"{'; '.join(told) or 'every example'}{keeps}"


def _elements_text(node: nodes.Node) -> str:
    """Returns which elements of a plan of file names a worker reads, in words."""
    if isinstance(node, selecting.Shard):
        return _slice_text(node.parent, node.shards, node.index)
    return f"every element of {_plan_text(node)}"


def _count_text(split: _BatchSplit, worker: int, own: nodes.Node) -> str:
    """Returns how many batches, examples and steps a worker has, in words."""
    batched = any(isinstance(n, sharding_rule.BATCHES) for n in nodes.walk(own))
    if split.share.is_single and not batched:
        return _counted(own.cardinality, "element")
    told = _counted(own.cardinality, "global batch")
    sizes = _batch_sizes(own) if own.cardinality >= 0 else None
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
        reads = _files_texts(file_listing.find_files(node)) or ["its own dataset"]
        count = _counted(node.cardinality, "element") + made
        parts = f"{whose}one element of the dataset"
        rows.append(InputRow(share.worker, whose + reads[0], count, parts))
    rule = "Elements are not split: each replica takes the next one."
    if share.workers > 1:
        rule += " The other workers have datasets of their own."
    told = [_ending_text(fixed) if lacks else "No step lacks elements."]
    told += _dropped_texts(given, "replica")
    texts = dict.fromkeys(map(_plan_text, given))
    return InputDescription(
        " | ".join(texts),
        rule,
        " ".join(told),
        tuple(rows),
        _functions_text(given),
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


def _plan_text(node: nodes.Node) -> str:
    """Returns the steps of a plan from its source to its end, in one line."""
    if isinstance(node, batching.HiddenBatchSize):
        # This node changes what is known about the batches before it, not the batches.
        return _plan_text(node.parent)
    if len(node.parents) == 1:
        return f"{_plan_text(node.parents[0])} → {_node_name(node)}"
    if not node.parents:
        return _node_name(node)
    inner = ", ".join(map(_plan_text, node.parents))
    if len(inner) > _LONG_MIX:
        inner = count_words(len(node.parents), "dataset")
    return f"{node}[{inner}]"


def _node_name(node: nodes.Node) -> str:
    """Returns the name of one node of a plan."""
    if isinstance(node, selecting.Shard) and node.shards == selecting.SHARD_HINT:
        return "Shard(SHARD_HINT)"
    if isinstance(node, file_listing.FILES):
        return f"{node.kind}({count_words(len(node.files), 'file')})"
    return str(node)


def _functions_text(given: Sequence[nodes.Node]) -> str:
    """Returns in which way the functions of maps run, in a sentence; "" without any."""
    told: list[str] = []
    for node in given:
        options = dataset_options.options_of(node)
        maps = [n for n in nodes.walk(node) if isinstance(n, mapping.Map)]
        told += [f"{n} {_way_text(n, options)}" for n in reversed(maps)]
    found = list(dict.fromkeys(told))
    shown = "; ".join(found[:_SHOWN_MAPS]) + "; …" * (len(found) > _SHOWN_MAPS)
    return f"Functions run on the host: {shown}." if found else ""


def _way_text(node: mapping.Map, options: dataset_options.Options) -> str:
    """Returns in which way a map calls its function, in words."""
    if options.compiled_maps:
        return "compiled, for many elements at once"
    processes = options.worker_processes
    if processes and node.parallel is not None:
        return f"in {processes} process{'es' * (processes > 1)}"
    if node.parallel is None or node.parallel == 1:
        return "one element after the other"
    if node.parallel == mapping.AUTOTUNE:
        return "one element after the other, or in threads if the first calls are slow"
    return f"in {node.parallel} threads"


# The most names of files, maps and workers that a line of text lists.
_SHOWN_FILES = 4
_SHOWN_MAPS = 4
_SHOWN_WORKERS = 8
_HEADS = ("worker", "reads", "how many", "each replica gets")


@final
@dataclasses.dataclass(frozen=True)
class InputRow:
    """The part of a dataset that one worker reads, in words.

    Attributes:
        worker: the number of the worker.
        reads: the files or elements that it reads.
        count: how many batches, examples or elements it reads.
        parts: the part that each of its replicas gets.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> dataset = unisono.data.Dataset.range(10).batch(4)
    >>> distributed = strategy.experimental_distribute_dataset(dataset)
    >>> (row,) = distributed.describe().rows
    >>> row.count, row.parts
    ('3 global batches, 10 examples', 'rows [0:2], [2:4] of 4')
    """

    worker: int
    reads: str
    count: str
    parts: str

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the row in a table."""
        return (str(self.worker), self.reads, self.count, self.parts)


@final
@dataclasses.dataclass(frozen=True)
class InputDescription(tables.ShownAsTable):
    """Says which worker reads what of a dataset; prints and shows as a table.

    Attributes:
        pipeline: the steps of the plan.
        rule: how batches are split.
        remainder: what happens to batches that do not divide.
        rows: one per worker; for datasets that are made per replica, one per replica.
        functions: in which way the functions of maps run.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> dataset = unisono.data.Dataset.range(10).batch(4)
    >>> described = strategy.experimental_distribute_dataset(dataset).describe()
    >>> described.pipeline
    'Range(0, 10) → Batch(4)'
    >>> described.remainder
    'A smaller batch leaves the last replicas short or empty. The split drops nothing.'
    """

    pipeline: str
    rule: str
    remainder: str
    rows: tuple[InputRow, ...]
    functions: str = ""

    @property
    def _note(self) -> str:
        return " ".join(filter(None, (self.rule, self.remainder, self.functions)))

    @property
    def line(self) -> str:
        """Returns all of it in one line, for a log."""
        shown = self.rows[:_SHOWN_WORKERS]
        reads = "; ".join(
            f"worker {r.worker} reads {r.reads} ({r.count})" for r in shown
        )
        more = len(self.rows) - len(shown)
        if more:
            reads += f"; and {more} more"
        return f"Input {self.pipeline}: {reads}. {self._note}"

    def _table(self) -> tables.TextTable:
        texts = [r.texts for r in self.rows]
        title = f"Input: {self.pipeline}"
        return tables.TextTable(title, _HEADS, texts, note=self._note)


def _counted(cardinality: int, what: str) -> str:
    """Returns a number of things in words, also if it is endless or unknown."""
    if cardinality == nodes.INFINITE:
        return f"endless {count_words(2, what)[2:]}"
    if cardinality < 0:
        return f"{count_words(2, what)[2:]}, as many as come"
    return count_words(cardinality, what)


def _files_texts(found: file_listing.FileList) -> list[str]:
    """Returns how many files a plan reads and the names of the first; [] if none."""
    paths = found.files
    if not paths:
        return []
    more = len(paths) - _SHOWN_FILES
    named = ", ".join(paths[:_SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")
    order = " in shuffled order" if found.is_shuffled and len(paths) > 1 else ""
    return [f"{count_words(len(paths), 'file')}{order}: {named}"]


def _slice_text(node: nodes.Node, shards: int, index: int) -> str:
    """Returns which elements of a plan one of several workers has, as a slice."""
    return f"elements [{index}::{shards}] of {_plan_text(node)}"


def _dropped_texts(plans: Sequence[nodes.Node], whose: str) -> list[str]:
    """Returns what `drop_remainder` drops, in a sentence; [] if nothing.

    Args:
        plans: the plan of each worker, or of each replica.
        whose: "worker" or "replica".
    """
    found = [_dropped_text(p) for p in plans]
    if not any(found):
        return []
    if len(set(found)) == 1:
        where = f" on each {whose}" if len(plans) > 1 else ""
        return [f"drop_remainder drops {found[0]}{where}."]
    shown = enumerate(found[:_SHOWN_WORKERS])
    told = ", ".join(f"{text or 'nothing'} on {whose} {n}" for n, text in shown)
    return [f"drop_remainder drops {told}{', …' * (len(found) > _SHOWN_WORKERS)}."]


# The nodes that give every element that they read, once in a pass.
_GIVE_ALL = (nodes.AllElements, selecting.AssertCardinality)


def _batch_sizes(node: nodes.Node) -> dict[int, int] | None:
    """Returns the number of batches of each size; None if the plan does not tell."""
    if isinstance(node, batching.Batching) and node.parent.cardinality >= 0:
        full, rest = divmod(node.parent.cardinality, node.size)
        return {node.size: full} | ({} if node.drop or not rest else {rest: 1})
    if isinstance(node, _GIVE_ALL):
        return _batch_sizes(node.parent)
    if isinstance(node, selecting.Repeat) and node.count >= 0:
        once = _batch_sizes(node.parent)
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
    return elements.common_rows(node.spec)


def _dropped_text(node: nodes.Node) -> str:
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
