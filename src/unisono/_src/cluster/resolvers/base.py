"""Defines `ClusterResolver`, which finds the cluster and this task's place in it."""

from __future__ import annotations

import abc
import collections
import dataclasses
from typing import Any, final

from unisono._src.cluster import accelerators, cluster_tasks, untrusted
from unisono._src.foundation import tables
from unisono._src.foundation.public_names import publish

# Sources that `explain` names.
CONSTRUCTOR = "the constructor's arguments"
PROGRAM = "set by the program"


class ClusterResolver(abc.ABC):
    """Finds the processes of a job, and which of them this process is.

    To write your own resolver, define `cluster_spec`. Set `task_type`, `task_id` and
    `rpc_layer` if they are known. Override `master` if it should return something other
    than the address of a task.

    >>> from unisono.train import ClusterSpec
    >>> class MyResolver(ClusterResolver):
    ...     def cluster_spec(self):
    ...         return ClusterSpec({"worker": ["a:1", "b:2"]})
    >>> resolver = MyResolver()
    >>> resolver.task_type, resolver.task_id = "worker", 1
    >>> resolver.master(), resolver.master(task_id=0, rpc_layer="grpc")
    ('b:2', 'grpc://a:1')
    """

    # Class attributes, so that a subclass need not call this class's constructor.
    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None

    def __repr__(self) -> str:
        # Nothing is asked for: that may need a network. `explain` tells more.
        return f"<{type(self).__name__}>"

    @abc.abstractmethod
    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the current cluster; each call looks it up again."""

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task, by default of this one.

        Args:
            task_type: the job; by default that of this task.
            task_id: the index in the job; by default that of this task.
            rpc_layer: a protocol to put in front of the address, such as ``grpc``.

        Returns:
            The address; an empty string if you name no task and this task is not known.

        Raises:
            ValueError: the cluster has no such task.
        """
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        if task_type is None or task_id is None:
            return ""
        address = self.cluster_spec().task_address(task_type, task_id)
        return add_protocol(address, rpc_layer or self.rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns how many accelerators of each kind a task may use.

        The accelerators of this machine are counted, without starting JAX. For other
        tasks than this one the result is therefore empty.

        Args:
            task_type: the job; by default that of this task.
            task_id: the index in the job; by default that of this task.
            config_proto: accepted, no effect.
        """
        del config_proto
        mine = (self.task_type, self.task_id)
        asked = (
            mine[0] if task_type is None else task_type,
            mine[1] if task_id is None else task_id,
        )
        return accelerators.count() if asked == mine else collections.defaultdict(int)

    @property
    def environment(self) -> str | None:
        """The environment of the program; empty unless a resolver was given one.

        In TensorFlow it is ``""``, or ``"google"`` inside Google.
        """
        return ""

    @property
    def task_type(self) -> str | None:
        """The job of this process, such as ``worker``; None if unknown."""
        found: str | None = self._answer("task_type")
        return found

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job; None if unknown."""
        found: int | None = self._answer("task_id")
        return found

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol that `master` puts in front of addresses, or None."""
        found: str | None = self._answer("rpc_layer")
        return found

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def _answer(self, what: str) -> Any:
        """Returns the value of a property; a subclass may also read it from outside."""
        return getattr(self, f"_{what}")

    def explain(self) -> Explanation:
        """Prints and returns what the resolver found, and where it comes from.

        >>> import unisono
        >>> cluster = unisono.train.ClusterSpec({"worker": ["a:1", "b:2"]})
        >>> resolvers = unisono.distribute.cluster_resolver
        >>> resolver = resolvers.SimpleClusterResolver(cluster, task_type="worker")
        >>> resolver.explain().findings[0].value
                          SimpleClusterResolver
        ...
        'worker'
        """
        import rich.console

        sources = self._sources()
        otherwise = sources.get("", "not set")
        known = [
            ("task_type", self.task_type),
            ("task_id", self.task_id),
            ("rpc_layer", self.rpc_layer),
            ("environment", self.environment),
        ]
        found = [
            Finding(w, str(v), sources.get(w, otherwise))
            for w, v in known
            if v not in (None, "")
        ]
        counted = dict(self.num_accelerators())
        source = sources.get("num_accelerators", "this machine")
        found.append(Finding("accelerators", str(counted or "none"), source))
        found += _cluster_findings(
            self.cluster_spec(), sources.get("cluster", otherwise)
        )
        result = Explanation(type(self).__name__, tuple(found))
        rich.console.Console().print(result.table)
        return result

    def _sources(self) -> dict[str, str]:
        """Returns the source of each finding; the empty name stands for all others."""
        return {"": PROGRAM}

    def _sources_if_set(self, source: str, *more: str) -> dict[str, str]:
        """Returns `source` for each property, and each of `more`, that was set."""
        names = ("task_type", "task_id", "rpc_layer", *more)
        return {w: source for w in names if getattr(self, f"_{w}") is not None}


def add_protocol(address: str, rpc_layer: str | None) -> str:
    """Returns the address as a URL, or as it is where there is no protocol.

    >>> add_protocol("a:1", "grpc"), add_protocol("a:1", None)
    ('grpc://a:1', 'a:1')
    """
    return f"{rpc_layer}://{address}" if rpc_layer else address


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
    """The values that a resolver found, with their sources; `str` returns a table.

    `ClusterResolver.explain` returns one.

    Attributes:
        title: the name of the resolver's class.
        findings: the values with their sources, in the order of the table.

    >>> import unisono
    >>> cluster = unisono.train.ClusterSpec({"worker": ["a:1", "b:2"]})
    >>> resolvers = unisono.distribute.cluster_resolver
    >>> found = resolvers.SimpleClusterResolver(cluster, task_type="worker").explain()
                          SimpleClusterResolver
    ...
    >>> found.title, found.findings[0].value
    ('SimpleClusterResolver', 'worker')
    """

    title: str
    findings: tuple[Finding, ...]

    def _table(self) -> tables.TextTable:
        texts = [(f.what, f.value, f.source) for f in self.findings]
        return tables.TextTable(self.title, ("what", "value", "from"), texts)


def _cluster_findings(cluster: cluster_tasks.ClusterSpec, source: str) -> list[Finding]:
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


publish("unisono.distribute.cluster_resolver", ClusterResolver, Explanation)
