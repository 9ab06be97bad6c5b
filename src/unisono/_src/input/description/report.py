"""The description of how a dataset is read: its table, and the words in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

from unisono._src.foundation import tables
from unisono._src.input.plan import elements, nodes
from unisono._src.input.stages import (
    batching,
    dataset_options,
    file_listing,
    mapping,
    selecting,
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


def plan_text(node: nodes.Node) -> str:
    """Returns the steps of a plan from its source to its end, in one line."""
    if isinstance(node, batching.HiddenBatchSize):
        # This node changes what is known about the batches before it, not the batches.
        return plan_text(node.parent)
    if len(node.parents) == 1:
        return f"{plan_text(node.parents[0])} → {_node_name(node)}"
    if not node.parents:
        return _node_name(node)
    inner = ", ".join(map(plan_text, node.parents))
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


def functions_text(given: Sequence[nodes.Node]) -> str:
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


def count_text(cardinality: int, what: str) -> str:
    """Returns a number of things in words, also if it is endless or unknown."""
    if cardinality == nodes.INFINITE:
        return f"endless {count_words(2, what)[2:]}"
    if cardinality < 0:
        return f"{count_words(2, what)[2:]}, as many as come"
    return count_words(cardinality, what)


def files_texts(found: file_listing.FileList) -> list[str]:
    """Returns how many files a plan reads and the names of the first; [] if none."""
    paths = found.files
    if not paths:
        return []
    more = len(paths) - _SHOWN_FILES
    named = ", ".join(paths[:_SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")
    order = " in shuffled order" if found.is_shuffled and len(paths) > 1 else ""
    return [f"{count_words(len(paths), 'file')}{order}: {named}"]


def slice_text(node: nodes.Node, shards: int, index: int) -> str:
    """Returns which elements of a plan one of several workers has, as a slice."""
    return f"elements [{index}::{shards}] of {plan_text(node)}"


def dropped_texts(plans: Sequence[nodes.Node], whose: str) -> list[str]:
    """Returns what `drop_remainder` drops, in a sentence; [] if nothing.

    Args:
        plans: the plan of each worker, or of each replica.
        whose: "worker" or "replica".
    """
    found = [dropped_text(p) for p in plans]
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
    return elements.common_rows(node.spec)


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
