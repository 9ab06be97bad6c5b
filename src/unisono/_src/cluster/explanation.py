"""Shows the findings of a resolver, and their sources, as a table for people."""

from __future__ import annotations

import dataclasses
from typing import final

from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.foundation import tables
from unisono._src.foundation.public_names import publish

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
class Explanation(tables.ShownAsTable):
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

    def _table(self) -> tables.TextTable:
        texts = [(f.what, f.value, f.source) for f in self.findings]
        return tables.TextTable(self.title, ("what", "value", "from"), texts)


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
