"""The description of how a dataset is read: its data, its table and its wording."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

from unisono._src.foundation import tables
from unisono._src.input.description import counts, plan_text
from unisono._src.input.description.plan_text import count_words
from unisono._src.input.plan import nodes
from unisono._src.input.stages import file_listing

# The most names of files, and workers, that a line of text lists.
_SHOWN_FILES = 4
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
        return f"Input {self.pipeline}: {reads}. {self.rule} {self.remainder}"

    def _table(self) -> tables.Table:
        texts = [r.texts for r in self.rows]
        note = f"{self.rule} {self.remainder}"
        return tables.Table(f"Input: {self.pipeline}", _HEADS, texts, note=note)


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
    return f"elements [{index}::{shards}] of {plan_text.text(node)}"


def dropped_texts(plans: Sequence[nodes.Node], whose: str) -> list[str]:
    """Returns what `drop_remainder` drops, in a sentence; [] if nothing.

    Args:
        plans: the plan of each worker, or of each replica.
        whose: "worker" or "replica".
    """
    found = [counts.dropped_text(p) for p in plans]
    if not any(found):
        return []
    if len(set(found)) == 1:
        where = f" on each {whose}" if len(plans) > 1 else ""
        return [f"drop_remainder drops {found[0]}{where}."]
    shown = enumerate(found[:_SHOWN_WORKERS])
    told = ", ".join(f"{text or 'nothing'} on {whose} {n}" for n, text in shown)
    return [f"drop_remainder drops {told}{', …' * (len(found) > _SHOWN_WORKERS)}."]
