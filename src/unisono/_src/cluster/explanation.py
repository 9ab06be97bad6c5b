"""What a resolver found, and where: a table for people."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, final

from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.foundation.public_names import publish

if TYPE_CHECKING:
    import rich.table

_LISTED = 8


@final
@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that a resolver found.

    Attributes:
        what: what it is, such as ``task_type``.
        value: what it is set to, as text.
        source: the variable, argument or service it comes from.
    """

    what: str
    value: str
    source: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What a resolver found and from which variable; `str` is a table.

    Attributes:
        title: the resolver's name.
        findings: what was found, in reading order.
    """

    title: str
    findings: tuple[Finding, ...]

    @property
    def table(self) -> rich.table.Table:
        """A `rich.table.Table`."""
        import rich.table
        import rich.text

        table = rich.table.Table(title=self.title)
        for head in ("what", "value", "from"):
            table.add_column(head, overflow="fold")
        for f in self.findings:
            # As Text: values are data, not markup.
            table.add_row(*(rich.text.Text(t) for t in (f.what, f.value, f.source)))
        return table

    def __str__(self) -> str:
        import rich.console

        console = rich.console.Console(width=100, color_system=None)
        with console.capture() as captured:
            console.print(self.table)
        return captured.get()


def cluster_findings(cluster: cluster_tasks.ClusterSpec, source: str) -> list[Finding]:
    """One finding per task; of large jobs the first ones and their number."""
    if not cluster.jobs:
        return [Finding("cluster", "(none: a single process)", source)]
    found = []
    for job in cluster.jobs:
        indices = cluster.task_indices(job)
        for index in indices[:_LISTED]:
            where = untrusted.shown(cluster.task_address(job, index))[1:-1]
            found.append(Finding(f"{job} {index}", where, source))
        if len(indices) > _LISTED:
            rest = f"and {len(indices) - _LISTED:,} more"
            found.append(Finding(f"{job} …", rest, source))
    return found


publish("unisono.distribute.cluster_resolver", Explanation)
