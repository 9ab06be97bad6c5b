"""What a distributed dataset does, as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from unisono._src.input import (
    choices,
    columnar,
    distributing,
    files,
    nodes,
    plan,
    steps,
)

_FILES = (files.Files, columnar.Parquet, columnar.ArrayRecord)
_SHOWN = 4


@dataclasses.dataclass(frozen=True)
class InputRow:
    """What one worker reads."""

    worker: int
    reads: str
    count: str
    parts: str


@dataclasses.dataclass(frozen=True)
class InputDescription:
    """Who reads what; prints as a table.

    Attributes:
        pipeline: the steps of the plan.
        rule: how batches are split.
        remainder: what happens to what does not divide.
        rows: one per worker.
    """

    pipeline: str
    rule: str
    remainder: str
    rows: tuple[InputRow, ...]

    @property
    def line(self) -> str:
        """All of it in one line, for a log."""
        reads = "; ".join(f"worker {r.worker} reads {r.reads}" for r in self.rows)
        return f"Input {self.pipeline}: {reads}. {self.rule} {self.remainder}"

    @property
    def table(self) -> Any:
        """A `rich.table.Table`."""
        import rich.table

        table = rich.table.Table(title=f"Input: {self.pipeline}")
        table.add_column("worker", justify="right")
        for head in ("reads", "how many", "each replica gets"):
            table.add_column(head)
        for r in self.rows:
            table.add_row(str(r.worker), r.reads, r.count, r.parts)
        table.caption = f"{self.rule} {self.remainder}"
        return table

    def __str__(self) -> str:
        import rich.console

        console = rich.console.Console(width=100, color_system=None)
        with console.capture() as captured:
            console.print(self.table)
        return captured.get()


def pipeline(node: nodes.Node) -> str:
    """The plan from its source to its end."""
    names = []
    while True:
        names.append(str(node))
        if not node.parents:
            break
        if len(node.parents) > 1:
            inner = ", ".join(pipeline(p) for p in node.parents)
            names[-1] = f"{names[-1]}[{inner}]"
            break
        node = node.parents[0]
    return " → ".join(reversed(names))


def counted(cardinality: int, what: str) -> str:
    """A number of things in words."""
    if cardinality == nodes.INFINITE:
        return f"endless {what}"
    return f"{what}, as many as come" if cardinality < 0 else f"{cardinality:,} {what}"


def _named(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_SHOWN])
    more = len(paths) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _files_of(node: nodes.Node, workers: int = 1, worker: int = 0) -> list[str]:
    """The files of every source, or those that are dealt to one worker."""
    found = [n for n in nodes.walk(node) if isinstance(n, _FILES)]
    return [path for n in found for path in n.files[worker::workers]]


def describe_batches(
    node: nodes.Node, decision: distributing.Decision, share: steps.Share
) -> InputDescription:
    """The description of a dataset whose global batches are split."""
    rows = tuple(_row(node, decision, share, w) for w in range(share.workers))
    if share.is_single:
        rule, remainder = "One replica: elements are not split.", "Nothing is dropped."
    elif decision.size is None:
        rule = (
            "Every global batch is cut into consecutive chunks of ceil(size / "
            f"{share.replicas})."
        )
        remainder = (
            "A smaller batch gives smaller chunks, and empty ones to the last "
            "replicas; nothing is dropped."
        )
    else:
        rule = (
            f"Parts of fixed sizes, from a global batch of {decision.size}, are filled "
            "in order."
        )
        remainder = (
            "A smaller batch leaves the last replicas short or empty; nothing is "
            "dropped."
        )
    return InputDescription(pipeline(node), rule, remainder, rows)


def _row(
    node: nodes.Node, decision: distributing.Decision, share: steps.Share, worker: int
) -> InputRow:
    kind = decision.kind
    dealt = kind == choices.AutoShardPolicy.FILE and share.workers > 1
    mine = _files_of(node, share.workers, worker) if dealt else _files_of(node)
    reads = f"{len(mine)} files: {_named(mine)}" if mine else "every example"
    if share.workers > 1 and kind == choices.AutoShardPolicy.DATA:
        reads += " and keeps its chunks"
    count = counted(node.cardinality, "global batches")
    return InputRow(worker, reads, count, _parts(node, decision, share, worker))


def _parts(
    node: nodes.Node, decision: distributing.Decision, share: steps.Share, worker: int
) -> str:
    if share.is_single:
        return "all"
    if decision.size is not None:
        sizes = plan.sizes_of_worker(
            decision.size, share.replicas, share.workers, worker
        )[: share.local]
        return f"{_runs(sizes)} of {decision.size}"
    size = distributing._walked_batch_size(node)
    if size is None:
        return f"1/{share.replicas} of each batch"
    bounds = plan.chunks_of_worker(size, share.replicas, share.workers, worker)
    rows = ", ".join(f"[{a}:{b}]" for a, b in bounds[:_SHOWN])
    more = ", …" if len(bounds) > _SHOWN else ""
    return f"rows {rows}{more} of {size}"


def _runs(sizes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sizes[:8]))
    return f"{shown}, …" if len(sizes) > 8 else shown


_DROPPED = "A last step with too few elements is dropped."
_FILLED = (
    "A last step with too few elements gives empty batches if sizes may vary, and is "
    "dropped if they are fixed."
)


def describe_elements(
    given: Sequence[nodes.Node], share: steps.Share, drops: bool
) -> InputDescription:
    """The description of datasets that a function made."""
    node = given[0]
    found = _files_of(node)
    reads = f"{len(found)} files: {_named(found)}" if found else "its own dataset"
    what = f"one element of {'its own' if len(given) > 1 else 'the'} dataset"
    row = InputRow(share.worker, reads, counted(node.cardinality, "elements"), what)
    return InputDescription(
        pipeline(node),
        "Elements are not split: each replica takes the next one.",
        _DROPPED if drops else _FILLED,
        (row,),
    )
