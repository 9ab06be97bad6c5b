"""Reads the cluster from the environment variable TF_CONFIG."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import os
from typing import Any, SupportsInt, final

from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.cluster.resolvers import base
from unisono._src.foundation.public_names import publish

VARIABLE = "TF_CONFIG"

# An evaluator reads checkpoints beside the cluster; it is no member of it.
_OUTSIDE = "evaluator"
# No index or port has so many digits; a longer number is refused before it is read.
_MAX_DIGITS = 20


@final
@dataclasses.dataclass(frozen=True)
class TFConfig:
    """The checked fields of TF_CONFIG."""

    cluster: cluster_tasks.ClusterSpec
    task_type: str | None = None
    task_id: int | None = None
    rpc_layer: str | None = None
    session_master: str | None = None


class TFConfigClusterResolver(base.ClusterResolver):
    """Reads TF_CONFIG: JSON with the keys ``cluster`` and ``task``.

    If the variable is not set, the cluster is empty and the process has no task. The
    variable is read and checked each time that you use a method or property.

    >>> import json, os, unittest.mock
    >>> config = {"cluster": {"worker": ["a:1", "b:2"]}}
    >>> config["task"] = {"type": "worker", "index": 1}
    >>> with unittest.mock.patch.dict(os.environ, TF_CONFIG=json.dumps(config)):
    ...     resolver = TFConfigClusterResolver()
    ...     resolver.task_type, resolver.task_id, resolver.master()
    ('worker', 1, 'b:2')

    Args:
        task_type: used instead of the variable's task type.
        task_id: used instead of the variable's task index.
        rpc_layer: used instead of the variable's ``rpc_layer``.
        environment: the value of `environment`.

    Raises:
        ValueError: the variable is malformed, or `task_id` is not a number. Every
            method and property raises it. The variable is malformed if it is not a JSON
            object, has a key twice, a job without tasks, an address without a usable
            port, two tasks at one address, or a task that the cluster does not have.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._task_type, self._task_id, self._rpc_layer = task_type, task_id, rpc_layer
        self._environment = environment

    def _answer(self, what: str) -> Any:
        own = super()._answer(what)
        if own is None:
            return getattr(read(), what)
        if what == "rpc_layer":
            return own
        return _read_task_id(own) if what == "task_id" else str(own)

    @property
    def environment(self) -> str | None:
        """The environment that was passed to the constructor."""
        return self._environment

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the cluster in TF_CONFIG; it is empty if the variable is not set."""
        return cluster_tasks.ClusterSpec(read().cluster)

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task, by default of this one.

        If the variable has a ``session_master``, the result is that. If the cluster has
        only one task, the result is empty.

        Raises:
            ValueError: the cluster has no such task.
        """
        config = read()
        # Both rules are TensorFlow's: programs give the result to a session.
        if config.session_master is not None:
            return config.session_master
        if sum(map(config.cluster.num_tasks, config.cluster.jobs)) <= 1:
            return ""
        address = config.cluster.task_address(
            self.task_type if task_type is None else task_type,  # type: ignore[arg-type]
            self.task_id if task_id is None else task_id,  # type: ignore[arg-type]
        )
        chosen = self.rpc_layer if rpc_layer is None else rpc_layer
        return base.add_protocol(address, chosen)

    def _sources(self) -> dict[str, str]:
        there = VARIABLE if VARIABLE in os.environ else f"{VARIABLE} is not set"
        return {"": there, **self._sources_if_set(base.PROGRAM, "environment")}


def _read_task_id(given: str | SupportsInt) -> int:
    try:
        return int(given)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"task_id must be a whole number, received {untrusted.excerpt(given)}."
        ) from None


def read() -> TFConfig:
    """Returns the present value of TF_CONFIG, checked.

    Raises:
        ValueError: the variable is malformed; see `parse`.
    """
    return parse(os.environ.get(VARIABLE, "{}"))


# Every property reads the variable anew, and most find the text of before.
@functools.lru_cache(maxsize=8)
def parse(text: str) -> TFConfig:
    """Returns the fields in a value of TF_CONFIG, checked.

    >>> parse(
    ...     '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
    ... )
    TFConfig(cluster=ClusterSpec({'worker': ['a:1']}), task_type='worker', task_id=0, ...)

    Raises:
        ValueError: the text is malformed; see `TFConfigClusterResolver`.
    """  # noqa: E501
    fields = _load(untrusted.bounded_text(VARIABLE, text))
    cluster = _cluster(fields.get("cluster", {}))
    task_type, task_id = _task(fields.get("task", {}), cluster)
    layer = fields.get("rpc_layer")
    master = fields.get("session_master")
    if master is not None and not isinstance(master, str):
        raise ValueError(
            f"{VARIABLE}: session_master must be a string, received "
            f"{untrusted.excerpt(master)}."
        )
    return TFConfig(
        cluster,
        task_type,
        task_id,
        None if layer is None else untrusted.rpc_layer(f"{VARIABLE}: rpc_layer", layer),
        master,
    )


def _load(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(
            text, object_pairs_hook=_refuse_duplicate_keys, parse_int=_short_number
        )
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{VARIABLE} is not JSON ({error.msg}, line {error.lineno} column "
            f"{error.colno}): {untrusted.excerpt(text)}."
        ) from None
    except RecursionError:
        raise ValueError(f"{VARIABLE} is nested too deeply.") from None
    if not isinstance(fields, dict):
        raise ValueError(
            f"{VARIABLE} must be a JSON object with the keys 'cluster' and 'task', "
            f"received {untrusted.excerpt(fields)}."
        )
    return fields


def _short_number(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"{VARIABLE} has a number of {len(digits):,} digits.")
    return int(digits)


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        ((twice, _),) = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(
            f"{VARIABLE} has the key {untrusted.excerpt(twice)} twice in one object."
        )
    return fields


def _cluster(jobs: object) -> cluster_tasks.ClusterSpec:
    if not isinstance(jobs, dict):
        raise ValueError(
            f"{VARIABLE}: 'cluster' must map job names to lists of addresses, received "
            f"{untrusted.excerpt(jobs)}."
        )
    checked = {
        untrusted.job_name(f"{VARIABLE}: a job's name", job): _tasks(job, tasks)
        for job, tasks in jobs.items()
    }
    total = sum(map(len, checked.values()))
    if total > untrusted.MAX_TASKS:
        raise ValueError(
            f"{VARIABLE} has {total:,} tasks; at most {untrusted.MAX_TASKS:,} are read."
        )
    untrusted.check_unique(VARIABLE, checked)
    return cluster_tasks.ClusterSpec(checked)


def _tasks(job: str, tasks: object) -> dict[int, str]:
    name = f"{VARIABLE}: job '{job}'"
    if isinstance(tasks, list):
        indexed = dict(enumerate(tasks))
    elif isinstance(tasks, dict):
        top = untrusted.MAX_TASKS - 1
        indexed = {
            untrusted.whole_number(f"{name}: an index", i, 0, top): address
            for i, address in tasks.items()
        }
        if len(indexed) != len(tasks):
            raise ValueError(f"{name} has an index twice: {untrusted.excerpt(tasks)}.")
    else:
        raise ValueError(
            f"{name} must be a list of addresses, or an object from indices to "
            f"addresses; received {untrusted.excerpt(tasks)}."
        )
    if not indexed:
        raise ValueError(f"{name} has no tasks; list their addresses, or leave it out.")
    return {
        i: untrusted.address(f"{name}: the address of task {i}", address)
        for i, address in indexed.items()
    }


def _task(
    task: object, cluster: cluster_tasks.ClusterSpec
) -> tuple[str | None, int | None]:
    if not isinstance(task, dict):
        raise ValueError(
            f"{VARIABLE}: 'task' must be an object with 'type' and 'index', received "
            f"{untrusted.excerpt(task)}."
        )
    job, index = task.get("type"), task.get("index")
    if isinstance(job, int) and not isinstance(job, bool):
        # The keys of a JSON object are text, so a job of the cluster is never a number.
        job = str(job)
    if job is not None:
        job = untrusted.job_name(f"{VARIABLE}: the task's type", job)
    if index is not None:
        top = untrusted.MAX_TASKS - 1
        index = untrusted.whole_number(f"{VARIABLE}: the task's index", index, 0, top)
    if job is None or not cluster.jobs or job == _OUTSIDE:
        return job, index
    if job not in cluster.jobs:
        raise ValueError(
            f"{VARIABLE}: the task is of type '{job}', which the cluster does not "
            f"have; it has {untrusted.excerpt(sorted(cluster.jobs))}."
        )
    if index is not None and index not in cluster.task_indices(job):
        raise ValueError(
            f"{VARIABLE}: the task is {job} {index}, but '{job}' has only the indices "
            f"{untrusted.excerpt(cluster.task_indices(job))}."
        )
    return job, index


publish("unisono.distribute.cluster_resolver", TFConfigClusterResolver)
