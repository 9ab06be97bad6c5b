"""Shows the findings of a resolver, and their sources, as a table for people."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, final

from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.foundation.public_names import publish

if TYPE_CHECKING:
    import rich.table

# A table lists this many tasks of each job and counts the others.
_LISTED = 8


@final
@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that a resolver found.

    Attributes:
        what: the name of the thing, such as ``task_type``.
        value: its value as text.
        source: the variable, argument or service that it comes from.
    """

    what: str
    value: str
    source: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Lists the findings of a resolver with their sources; `str` gives a table.

    `ClusterResolver.explain` makes one.

    Attributes:
        title: the resolver's name.
        findings: the findings, in reading order.

    >>> found = Explanation("MyResolver", (Finding("task_id", "1", "TF_CONFIG"),))
    >>> "TF_CONFIG" in str(found), found.findings[0].value
    (True, '1')
    """

    title: str
    findings: tuple[Finding, ...]

    @property
    def table(self) -> rich.table.Table:
        """The findings as a `rich.table.Table`."""
        import rich.table
        import rich.text

        table = rich.table.Table(title=self.title)
        for head in ("what", "value", "from"):
            table.add_column(head, overflow="fold")
        for f in self.findings:
            # Rich reads markup in plain strings, and these values are a stranger's.
            table.add_row(*(rich.text.Text(t) for t in (f.what, f.value, f.source)))
        return table

    def __str__(self) -> str:
        import rich.console

        console = rich.console.Console(width=100, color_system=None)
        with console.capture() as captured:
            console.print(self.table)
        return captured.get()


def cluster_findings(cluster: cluster_tasks.ClusterSpec, source: str) -> list[Finding]:
    """Returns a finding for each task; large jobs end with the number of the rest."""
    if not cluster.jobs:
        return [Finding("cluster", "(none: a single process)", source)]
    found = []
    for job in cluster.jobs:
        indices = cluster.task_indices(job)
        for index in indices[:_LISTED]:
            where = untrusted.excerpt(cluster.task_address(job, index))[1:-1]
            found.append(Finding(f"{job} {index}", where, source))
        if len(indices) > _LISTED:
            rest = f"and {len(indices) - _LISTED:,} more"
            found.append(Finding(f"{job} …", rest, source))
    return found


publish("unisono.distribute.cluster_resolver", Explanation)
