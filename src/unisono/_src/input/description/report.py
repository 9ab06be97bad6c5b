"""What a description of a dataset consists of, and its words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

from unisono._src.input.description import counts, plan_text
from unisono._src.input.description.plan_text import plural
from unisono._src.input.plan import nodes
from unisono._src.input.stages import file_listing

_SHOWN_FILES = 4
_SHOWN_WORKERS = 8


@final
@dataclasses.dataclass(frozen=True)
class InputRow:
    """What one worker reads."""

    worker: int
    reads: str
    count: str
    parts: str


@final
@dataclasses.dataclass(frozen=True)
class InputDescription:
    """Who reads what; prints as a table.

    Attributes:
        pipeline: the steps of the plan.
        rule: how batches are split.
        remainder: what happens to what does not divide.
        rows: one per worker; of datasets that are made per replica, one for each.
    """

    pipeline: str
    rule: str
    remainder: str
    rows: tuple[InputRow, ...]

    @property
    def line(self) -> str:
        """All of it in one line, for a log."""
        shown = self.rows[:_SHOWN_WORKERS]
        reads = "; ".join(
            f"worker {r.worker} reads {r.reads} ({r.count})" for r in shown
        )
        more = len(self.rows) - len(shown)
        if more:
            reads += f"; and {more} more"
        return f"Input {self.pipeline}: {reads}. {self.rule} {self.remainder}"

    @property
    def table(self) -> Any:
        """A `rich.table.Table`."""
        import rich.table

        table = rich.table.Table(title=f"Input: {self.pipeline}")
        for head in ("worker", "reads", "how many", "each replica gets"):
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


def counted(cardinality: int, what: str) -> str:
    """A number of things in words."""
    if cardinality == nodes.INFINITE:
        return f"endless {plural(2, what)[2:]}"
    if cardinality < 0:
        return f"{plural(2, what)[2:]}, as many as come"
    return plural(cardinality, what)


def files(found: file_listing.FileList) -> list[str]:
    """How many files a plan reads, and the names of the first."""
    paths = found.files
    if not paths:
        return []
    more = len(paths) - _SHOWN_FILES
    named = ", ".join(paths[:_SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")
    order = " in shuffled order" if found.is_shuffled and len(paths) > 1 else ""
    return [f"{plural(len(paths), 'file')}{order}: {named}"]


def picked(node: nodes.Node, shards: int, index: int) -> str:
    """Which elements of a plan one of several workers has, as a slice."""
    return f"elements [{index}::{shards}] of {plan_text.text(node)}"


def dropped(plans: Sequence[nodes.Node], whose: str) -> list[str]:
    """What `drop_remainder` drops in the plan of each worker, or of each replica."""
    found = [counts.dropped(p) for p in plans]
    if not any(found):
        return []
    if len(set(found)) == 1:
        where = f" on each {whose}" if len(plans) > 1 else ""
        return [f"drop_remainder drops {found[0]}{where}."]
    shown = enumerate(found[:_SHOWN_WORKERS])
    told = ", ".join(f"{text or 'nothing'} on {whose} {n}" for n, text in shown)
    return [f"drop_remainder drops {told}{', …' * (len(found) > _SHOWN_WORKERS)}."]
