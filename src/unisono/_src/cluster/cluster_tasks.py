"""Defines `ClusterSpec`: the tasks of a cluster and their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsInt

from unisono._src.foundation.public_names import publish


class ClusterSpec:
    """The processes of a job, by role and index, with their network addresses.

    A role is called a job. It has a list of addresses, or a dictionary from indices to
    addresses if a process knows only some of them.

    >>> cluster = ClusterSpec({"worker": ["a:1", "b:2"], "ps": {3: "c:4"}})
    >>> cluster.task_address("worker", 1), cluster.num_tasks("ps")
    ('b:2', 1)
    >>> cluster
    ClusterSpec({'ps': {3: 'c:4'}, 'worker': ['a:1', 'b:2']})

    Args:
        cluster: a dictionary from job names to lists of addresses or to dictionaries
            from indices to addresses; or another `ClusterSpec`.

    Raises:
        TypeError: `cluster` is none of these, or a name or an address is not a string.
    """

    def __init__(self, cluster: ClusterSpec | Mapping[str, Any]) -> None:
        jobs = cluster.as_dict() if isinstance(cluster, ClusterSpec) else cluster
        if not isinstance(jobs, dict):
            raise TypeError(
                "`cluster` must be a dictionary mapping one or more job names to lists "
                "of network addresses, or a ClusterSpec; received "
                f"{type(jobs).__name__}."
            )
        self._jobs = {_job_name(job): _tasks(job, tasks) for job, tasks in jobs.items()}

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterSpec):
            return NotImplemented
        return self._jobs == other._jobs

    # A `ClusterSpec` compares by its tasks and, as in TensorFlow, has no hash. Mypy
    # knows `__hash__` only as a method.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        tasks = self.as_dict()
        inner = ", ".join(f"{job!r}: {tasks[job]!r}" for job in sorted(tasks))
        return f"ClusterSpec({{{inner}}})"

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Returns the addresses of each job.

        A job is a list of addresses, or a dictionary if an index is missing.

        >>> ClusterSpec({"worker": {0: "a:1", 1: "b:2"}, "ps": {2: "c:3"}}).as_dict()
        {'worker': ['a:1', 'b:2'], 'ps': {2: 'c:3'}}
        """
        return {job: self._as_list(job) or dict(t) for job, t in self._jobs.items()}

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs.

        >>> ClusterSpec({"worker": ["a:1"], "ps": ["b:2"]}).jobs
        ['worker', 'ps']
        """
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """Returns how many tasks a job has.

        >>> ClusterSpec({"worker": ["a:1", "b:2"]}).num_tasks("worker")
        2

        Raises:
            ValueError: there is no such job.
        """
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Returns the indices of a job's tasks, in order.

        >>> ClusterSpec({"ps": {3: "c:4", 1: "a:2"}}).task_indices("ps")
        [1, 3]

        Raises:
            ValueError: there is no such job.
        """
        return sorted(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Returns the address of one task.

        >>> ClusterSpec({"worker": ["a:1", "b:2"]}).task_address("worker", 1)
        'b:2'

        Raises:
            ValueError: there is no such job, or no such task in it.
        """
        tasks = self._job(job_name)
        if task_index not in tasks:
            raise ValueError(f"No task with index {task_index!r} in job {job_name!r}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Returns a job's addresses by index, with None where an index is missing.

        >>> ClusterSpec({"ps": {2: "c:3"}}).job_tasks("ps")
        [None, None, 'c:3']

        Raises:
            ValueError: there is no such job.
        """
        tasks = self._job(job_name)
        return [tasks.get(i) for i in range(max(tasks, default=-1) + 1)]

    def _job(self, job_name: str) -> dict[int, str]:
        try:
            return self._jobs[job_name]
        except (KeyError, TypeError):
            raise ValueError(f"No such job in cluster: {job_name!r}") from None

    def _as_list(self, job: str) -> list[str] | None:
        tasks = self._jobs[job]
        # A process may know some tasks only; then indices cannot be places in a list.
        if sorted(tasks) != list(range(len(tasks))):
            return None
        return [tasks[i] for i in range(len(tasks))]


def _job_name(name: object) -> str:
    if isinstance(name, str):
        return name
    raise TypeError(f"A job name must be a string, received {name!r}.")


def _tasks(job: object, tasks: object) -> dict[int, str]:
    if isinstance(tasks, list | tuple):
        indexed = dict(enumerate(tasks))
    elif isinstance(tasks, dict):
        indexed = {_index(job, i): address for i, address in tasks.items()}
    else:
        raise TypeError(
            f"The tasks for job {job!r} must be a list or a dictionary from integers "
            f"to strings; received {type(tasks).__name__}."
        )
    for index, address in indexed.items():
        if not isinstance(address, str):
            raise TypeError(
                f"The address of task {index} of job {job!r} must be a string such as "
                f"'host:port', received {address!r}."
            )
    return indexed


def _index(job: object, index: str | SupportsInt) -> int:
    try:
        number = int(index)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(index, bool | float):
        raise TypeError(
            f"A task of job {job!r} has the index {index!r}; indices are integers "
            "from 0 on."
        )
    return number


publish("unisono.train", ClusterSpec)
