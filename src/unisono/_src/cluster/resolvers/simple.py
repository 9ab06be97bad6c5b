"""Resolvers that the program itself tells the cluster, or the union of several."""

from __future__ import annotations

from typing import Any

from unisono._src.cluster import cluster_tasks
from unisono._src.cluster.resolvers import base


class SimpleClusterResolver(base.ClusterResolver):
    """Returns the cluster and the task that you pass to its constructor.

    >>> from unisono.train import ClusterSpec
    >>> cluster = ClusterSpec({"worker": ["a:1", "b:2"]})
    >>> resolver = SimpleClusterResolver(cluster, task_type="worker", task_id=1)
    >>> resolver.master("worker", 0)
    'a:1'

    Args:
        cluster_spec: the cluster.
        master: the result of `master()` if you name no task.
        task_type: the job of this process.
        task_id: the index of this process in its job.
        environment: the value of `environment`.
        num_accelerators: how many accelerators of each kind a worker has.
        rpc_layer: the protocol to put in front of addresses.

    Raises:
        TypeError: `cluster_spec` is not a `ClusterSpec`, or `master` is not a string.
    """

    def __init__(
        self,
        cluster_spec: cluster_tasks.ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: dict[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        if not isinstance(cluster_spec, cluster_tasks.ClusterSpec):
            raise TypeError(
                "cluster_spec must be a `tf.train.ClusterSpec`, received "
                f"{type(cluster_spec).__name__}; wrap it: ClusterSpec(...)."
            )
        if not isinstance(master, str):
            raise TypeError(f"master must be a string, received {master!r}.")
        self._cluster_spec = cluster_spec
        self._master = master
        self._task_type, self._task_id, self._rpc_layer = task_type, task_id, rpc_layer
        self._environment = environment
        self._num_accelerators = num_accelerators

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the cluster that was passed to the constructor."""
        return self._cluster_spec

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of the named task, or else the constructor's `master`."""
        if task_type is not None and task_id is not None:
            address = self._cluster_spec.task_address(task_type, task_id)
        else:
            address = self._master
        return base.add_protocol(address, rpc_layer or self.rpc_layer)

    @property
    def environment(self) -> str | None:
        """The environment that was passed to the constructor."""
        return self._environment

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns the constructor's `num_accelerators`, whichever task is named."""
        del task_type, task_id, config_proto
        return self._num_accelerators or {}

    def _sources(self) -> dict[str, str]:
        return {"": base.CONSTRUCTOR, "num_accelerators": base.CONSTRUCTOR}


class UnionClusterResolver(base.ClusterResolver):
    """Joins several resolvers; the first one says which task this process is.

    If several clusters have a job of the same name, its lists of addresses are
    concatenated. If one of them is a dictionary from indices, all are merged as
    dictionaries, and an index may occur only once.

    >>> from unisono.train import ClusterSpec
    >>> a = SimpleClusterResolver(ClusterSpec({"worker": ["a:1"]}))
    >>> b = SimpleClusterResolver(ClusterSpec({"worker": ["b:2"], "ps": ["c:3"]}))
    >>> UnionClusterResolver(a, b).cluster_spec()
    ClusterSpec({'ps': ['c:3'], 'worker': ['a:1', 'b:2']})

    Args:
        *args: the resolvers.
        **kwargs: `task_type`, `task_id` and `rpc_layer` replace those of the first one.

    Raises:
        TypeError: an argument is not a `ClusterResolver`.
        ValueError: there is no resolver, or a keyword is unknown.
    """

    def __init__(self, *args: base.ClusterResolver, **kwargs: Any) -> None:
        self._rpc_layer = kwargs.pop("rpc_layer", None)
        self._task_type = kwargs.pop("task_type", None)
        self._task_id = kwargs.pop("task_id", None)
        if kwargs:
            raise ValueError(
                f"Unexpected kwargs provided {kwargs!r}; known are rpc_layer, "
                "task_type and task_id."
            )
        if not args:
            raise ValueError("At least one ClusterResolver is required.")
        for given in args:
            if not isinstance(given, base.ClusterResolver):
                raise TypeError(
                    "All arguments must be a sub-class of `ClusterResolver`; received "
                    f"{type(given).__name__}."
                )
        self._resolvers = args

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the union of the resolvers' clusters.

        Raises:
            KeyError: an index of a job that is a dictionary occurs twice.
        """
        parts = [r.cluster_spec().as_dict() for r in self._resolvers]
        jobs = dict.fromkeys(job for part in parts for job in part)
        return cluster_tasks.ClusterSpec(
            {job: _merge([part[job] for part in parts if job in part]) for job in jobs}
        )

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of the named task, or else that of the first resolver."""
        if task_type is not None and task_id is not None:
            address = self.cluster_spec().task_address(task_type, task_id)
            return base.add_protocol(address, rpc_layer or self._rpc_layer)
        return self._resolvers[0].master(rpc_layer=rpc_layer)

    def _answer(self, what: str) -> Any:
        own = super()._answer(what)
        # An empty protocol is none, while task 0 is a task.
        is_set = bool(own) if what == "rpc_layer" else own is not None
        return own if is_set else getattr(self._resolvers[0], what)

    @property
    def environment(self) -> str | None:
        """The first resolver's environment."""
        return self._resolvers[0].environment

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns the number of accelerators that the first resolver reports."""
        return self._resolvers[0].num_accelerators(task_type, task_id, config_proto)

    def _sources(self) -> dict[str, str]:
        names = [type(r).__name__ for r in self._resolvers]
        return {
            "": names[0],
            "num_accelerators": names[0],
            "cluster": " and ".join(names),
            **self._sources_if_set(base.CONSTRUCTOR),
        }


def _merge(
    parts: list[list[str] | dict[int, str]],
) -> list[str] | dict[int, str]:
    if all(isinstance(part, list) for part in parts):
        # Mypy does not narrow the elements of a list.
        return [address for part in parts for address in part]  # type: ignore[misc]
    merged: dict[int, str] = {}
    for part in parts:
        indexed = part if isinstance(part, dict) else dict(enumerate(part))
        twice = merged.keys() & indexed.keys()
        if twice:
            raise KeyError(
                f"Duplicate keys detected when merging two ClusterSpecs: {twice!r}; "
                "give the tasks of a job different indices."
            )
        merged |= indexed
    return merged
