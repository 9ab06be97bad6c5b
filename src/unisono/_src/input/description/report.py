"""What a description of a dataset consists of, and its words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from unisono._src.input.description import counts, plan_text
from unisono._src.input.description.plan_text import plural
from unisono._src.input.plan import nodes

if TYPE_CHECKING:
    import rich.table

_SHOWN = 4
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
    def table(self) -> rich.table.Table:
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


def counted(cardinality: int, what: str) -> str:
    """A number of things in words."""
    if cardinality == nodes.INFINITE:
        return f"endless {plural(2, what)[2:]}"
    if cardinality < 0:
        return f"{plural(2, what)[2:]}, as many as come"
    return plural(cardinality, what)


def files(paths: Sequence[str], is_shuffled: bool = False) -> str:
    """How many there are, and the names of the first."""
    shown = ", ".join(paths[:_SHOWN])
    more = len(paths) - _SHOWN
    named = f"{shown} and {more} more" if more > 0 else shown
    order = " in shuffled order" if is_shuffled and len(paths) > 1 else ""
    return f"{plural(len(paths), 'file')}{order}: {named}"


def picked(node: nodes.Node, shards: int, index: int) -> str:
    """Which elements of a plan one of several workers has."""
    total = node.cardinality
    numbers = range(index, total if total >= 0 else index + _SHOWN * shards, shards)
    if not numbers:
        return f"no element of {plan_text.text(node)}"
    if total >= 0 and len(numbers) <= _SHOWN:
        shown = ", ".join(map(str, numbers))
    else:
        shown = ", ".join(map(str, numbers[: _SHOWN - 1])) + ", …"
        shown += f", {numbers[-1]:,}" if total >= 0 else ""
    word = "elements" if total < 0 or len(numbers) > 1 else "element"
    return f"{word} {shown} of {plan_text.text(node)}"


def numbers(sizes: Sequence[int]) -> str:
    """A list of them, of which a long one is cut."""
    shown = ", ".join(map(str, sizes[:8]))
    return f"{shown}, …" if len(sizes) > 8 else shown


def dropped(plans: Sequence[nodes.Node], is_shared: bool) -> list[str]:
    """What `drop_remainder` drops, on each worker where each reads batches itself."""
    found = [counts.dropped(p) for p in (plans if is_shared else plans[:1])]
    if not any(found):
        return []
    known = [d.count for per_worker in found for d in per_worker]
    alone = all(len(per_worker) < 2 for per_worker in found)
    if None in known or not alone:
        size = max(d.size for per_worker in found for d in per_worker)
        where = " on each worker" if is_shared else ""
        return [f"drop_remainder drops what does not fill a batch of {size}{where}."]
    each = any(d.is_each_pass for per_worker in found for d in per_worker)
    when = " in every pass" if each else ""
    numbers = [sum(d.count or 0 for d in per_worker) for per_worker in found]
    if len(set(numbers)) == 1:
        where = " on each worker" if is_shared else ""
        told = plural(numbers[0], "example")
        return [f"drop_remainder drops {told}{where}{when}."]
    told = ", ".join(f"{n} on worker {w}" for w, n in enumerate(numbers[:_SHOWN]))
    more = ", …" if len(numbers) > _SHOWN else ""
    return [
        f"drop_remainder drops {plural(sum(numbers), 'example')}{when}: {told}{more}."
    ]
