"""Finds the cluster of a Slurm job step."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import re
from collections.abc import Iterator

from unisono._src.cluster import accelerators, cluster_tasks, untrusted
from unisono._src.cluster.resolvers import base

RANK = "SLURM_PROCID"
TASKS = "SLURM_STEP_NUM_TASKS"
NODES = "SLURM_STEP_NODELIST"
TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE"
NODE = "SLURM_NODEID"
LOCAL = "SLURM_LOCALID"
GPUS_PER_TASK = "SLURM_GPUS_PER_TASK"
_CUDA = accelerators.VISIBLE_GPUS
# Slurm's short forms: lists of hosts, and numbers of tasks per node.
_PART = re.compile(r"[^\[\]]+|\[[^\[\]]*\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_REPEATED = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
# A product of more ranges than this is no list of hosts that anybody has.
_MAX_BRACKETS = 4


def is_in_step() -> bool:
    """Whether the environment looks as if ``srun`` had started this process."""
    return all(name in os.environ for name in (RANK, NODES, TASKS_PER_NODE))


class SlurmClusterResolver(base.ClusterResolver):
    """Reads the job step that ``srun`` started this process in.

    Tasks are numbered node by node, in Slurm's order of the nodes. Each task has its
    own port on its node. `task_type` and `task_id` are known immediately.

    >>> import os, unittest.mock
    >>> told = {"SLURM_PROCID": "2", "SLURM_STEP_NODELIST": "n[1-2]"}
    >>> told |= {"SLURM_STEP_TASKS_PER_NODE": "2,1", "CUDA_VISIBLE_DEVICES": ""}
    >>> with unittest.mock.patch.dict(os.environ, told):
    ...     resolver = SlurmClusterResolver()
    >>> resolver.get_task_info(), resolver.master("worker", 1), resolver.master()
    (('worker', 2), 'grpc://n1:8889', 'grpc://n2:8888')

    Args:
        jobs: how many tasks each job has; by default all tasks of the step belong to
            the job ``worker``.
        port_base: the first port on each node.
        gpus_per_node: how many GPUs a node has; by default the GPUs of this node are
            counted.
        gpus_per_task: how many GPUs a task has; by default the GPUs of a node are
            divided among its tasks.
        tasks_per_node: how many tasks a node has: one number for all nodes, or a
            dictionary by host name; by default the numbers come from Slurm.
        auto_set_gpu: whether `cluster_spec` sets CUDA_VISIBLE_DEVICES to this task's
            share, if there are GPUs and Slurm has not given each task its own.
        rpc_layer: the protocol that `master` puts in front of addresses.

    Raises:
        RuntimeError: this process is not part of a Slurm step, `jobs` and the step
            differ in the number of tasks, or you ask for more GPUs than a node has.
        TypeError: `jobs` is not a dictionary whose keys are names.
        ValueError: a variable of Slurm, or an argument, is malformed.
    """

    def __init__(
        self,
        jobs: dict[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | dict[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
    ) -> None:
        self._nodes = _tasks_by_node(tasks_per_node)
        count = sum(self._nodes.values())
        top = untrusted.MAX_TASKS - 1
        rank = untrusted.whole_number(RANK, _read_variable(RANK), 0, top)
        given = _check_jobs({} if jobs is None else jobs)
        self._jobs = given or {"worker": _step_size(count)}
        if sum(self._jobs.values()) != count:
            raise RuntimeError(
                f"Requested {sum(self._jobs.values())} tasks but only {count} were "
                f"assigned: jobs={self._jobs}, tasks by node {self._nodes}."
            )
        if rank >= count:
            raise RuntimeError(
                f"{RANK} is {rank}, but the step has {count} tasks, 0 to {count - 1}."
            )
        self._port_base = untrusted.port("port_base", port_base)
        untrusted.port(
            "The last port, port_base plus the tasks of a node,",
            port_base + max(self._nodes.values()) - 1,
        )
        self._rank = rank
        self._rpc_layer = rpc_layer
        self._auto_set_gpu = auto_set_gpu
        self._set_gpus(gpus_per_node, gpus_per_task)
        self._task_type, self._task_id = self._own_task()
        # With a dictionary the program has numbered the tasks in an order of its own.
        if not isinstance(tasks_per_node, dict):
            self._check_place()

    def _set_gpus(self, per_node: int | None, per_task: int | None) -> None:
        if per_node is not None:
            per_node = _check_count("gpus_per_node", per_node, 0)
        if per_task is not None:
            per_task = _check_count("gpus_per_task", per_task, 0)
        most = max(self._nodes.values())
        self._visible = accelerators.visible_gpus() if per_node is None else None
        bound = os.environ.get(GPUS_PER_TASK) if per_task is None else None
        # With --gpus-per-task, Slurm shows each task its own GPUs and no others, so
        # that CUDA_VISIBLE_DEVICES must stay as it is.
        self._bound_by_slurm = bound is not None and per_node is None
        if self._bound_by_slurm and self._visible is not None:
            # All that this task sees is its own.
            self._gpus_per_task = len(self._visible)
            return
        if per_node is None:
            per_node = len(self._visible or ())
        self._gpus_per_task = per_node // most if per_task is None else per_task
        if most * self._gpus_per_task > per_node:
            raise RuntimeError(
                # TensorFlow's wording, with its slip of the pen.
                f"Requested more GPUs per node then available: {most} tasks × "
                f"{self._gpus_per_task} GPUs, but a node has {per_node}."
            )

    def _own_task(self) -> tuple[str, int]:
        """Returns the job of this rank and its index; jobs follow in sorted order."""
        before = 0
        for job, size in self._jobs.items():
            if self._rank < before + size:
                return job, self._rank - before
            before += size
        raise AssertionError("unreachable: the rank is within the sum of the jobs")

    def _places(self) -> list[tuple[int, int]]:
        """Returns, for each rank, the number of its node and its number on the node."""
        return [
            (node, local)
            for node, count in enumerate(self._nodes.values())
            for local in range(count)
        ]

    def _check_place(self) -> None:
        """Raises if Slurm has placed this rank elsewhere than `_places` says."""
        most = untrusted.MAX_TASKS
        for name, place in zip((NODE, LOCAL), self._places()[self._rank], strict=True):
            if name not in os.environ:
                continue
            told = untrusted.whole_number(name, os.environ[name], 0, most)
            if told != place:
                raise RuntimeError(
                    f"Task {self._rank} should have {name}={place} when nodes are "
                    f"filled one after another, but it is {told}. Start the step with "
                    "srun --distribution=block."
                )

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the tasks; with `auto_set_gpu`, also sets CUDA_VISIBLE_DEVICES."""
        hosts, places = list(self._nodes), self._places()
        addresses = [f"{hosts[n]}:{self._port_base + local}" for n, local in places]
        cluster, before = {}, 0
        for job, size in self._jobs.items():
            cluster[job] = addresses[before : before + size]
            before += size
        if self._auto_set_gpu and self._gpus_per_task and not self._bound_by_slurm:
            self._show_own_gpus(places[self._rank][1])
        return cluster_tasks.ClusterSpec(cluster)

    def _show_own_gpus(self, local: int) -> None:
        first = local * self._gpus_per_task
        mine = range(first, first + self._gpus_per_task)
        # CUDA's own names, which need not be numbers.
        names = self._visible
        os.environ[_CUDA] = ",".join(names[i] if names else str(i) for i in mine)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Returns this task's job and its index in the job."""
        return self.task_type, self.task_id

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns how many GPUs a task has; the number is the same for all tasks."""
        del task_type, task_id, config_proto
        return {"GPU": self._gpus_per_task}

    def _sources(self) -> dict[str, str]:
        return {
            "": RANK,
            "rpc_layer": base.CONSTRUCTOR,
            "cluster": f"{NODES}, {TASKS_PER_NODE} and port_base",
            "num_accelerators": f"{_CUDA}, nvidia-smi or {base.CONSTRUCTOR}",
        }


def _read_variable(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise RuntimeError(
            f"{name} not found in environment. Not running inside a Slurm step? Start "
            "the program with srun."
        ) from None


def _step_size(count: int) -> int:
    if TASKS not in os.environ:
        return count
    return untrusted.whole_number(TASKS, os.environ[TASKS], 1, untrusted.MAX_TASKS)


def _check_jobs(jobs: object) -> dict[str, int]:
    if not isinstance(jobs, dict) or not all(isinstance(job, str) for job in jobs):
        raise TypeError(
            "jobs must be a dictionary from names of jobs to numbers of tasks, such as "
            f"{{'worker': 2}}; received {untrusted.excerpt(jobs)}."
        )
    return {
        job: _check_count(f"jobs[{untrusted.excerpt(job)}]", jobs[job], 0)
        for job in sorted(jobs)
    }


def _check_count(name: str, given: object, least: int) -> int:
    # Integers of NumPy count as well.
    with contextlib.suppress(TypeError):
        given = operator.index(given)  # type: ignore[arg-type]
    return untrusted.whole_number(name, given, least, untrusted.MAX_TASKS)


def _tasks_by_node(given: int | dict[str, int] | None) -> dict[str, int]:
    if isinstance(given, dict):
        if not given:
            raise ValueError(
                f"tasks_per_node must give each host at least one task, got {given!r}."
            )
        return {
            untrusted.host("tasks_per_node", host): _check_count(
                f"tasks_per_node[{untrusted.excerpt(host)}]", n, 1
            )
            for host, n in given.items()
        }
    hosts = expand_hosts(NODES, _read_variable(NODES))
    if given is not None:
        each = untrusted.whole_number("tasks_per_node", given, 1, untrusted.MAX_TASKS)
        return dict.fromkeys(hosts, each)
    counts = expand_counts(TASKS_PER_NODE, _read_variable(TASKS_PER_NODE))
    if len(counts) != len(hosts):
        raise ValueError(
            f"{NODES} names {len(hosts)} hosts, but {TASKS_PER_NODE} speaks of "
            f"{len(counts)}."
        )
    return dict(zip(hosts, counts, strict=True))


def expand_hosts(name: str, text: str) -> list[str]:
    """Returns the hosts of a Slurm list in its order, with leading zeros kept.

    >>> expand_hosts("SLURM_STEP_NODELIST", "n[08-10,12],m5,r[1-2]n[3-4]")
    ['n08', 'n09', 'n10', 'n12', 'm5', 'r1n3', 'r1n4', 'r2n3', 'r2n4']

    Raises:
        ValueError: the text is no such list, or stands for too many hosts.
    """
    hosts: list[str] = []
    for entry in _split(name, untrusted.bounded_text(name, text)):
        room = untrusted.MAX_TASKS - len(hosts)
        found = list(itertools.islice(_expand(name, entry), room + 1))
        if len(found) > room:
            raise ValueError(
                f"{name} stands for more than {untrusted.MAX_TASKS:,} hosts: "
                f"{untrusted.excerpt(text)}."
            )
        hosts += [untrusted.host(name, host) for host in found]
    twice = next((h for h, n in itertools.pairwise(sorted(hosts)) if h == n), None)
    if twice is not None:
        raise ValueError(f"{name} names the host {untrusted.excerpt(twice)} twice.")
    return hosts


def expand_counts(name: str, text: str) -> list[int]:
    """Returns how many tasks each node has, from Slurm's form with repetitions.

    >>> expand_counts("SLURM_STEP_TASKS_PER_NODE", "3(x2),2,1")
    [3, 3, 2, 1]

    Raises:
        ValueError: the text is no such list, or stands for too many tasks.
    """
    counts: list[int] = []
    for part in untrusted.bounded_text(name, text).split(","):
        match = _REPEATED.fullmatch(part)
        if match is None:
            raise ValueError(
                f"{name} must be a list such as '3(x2),1', received "
                f"{untrusted.excerpt(text)}."
            )
        each, times = int(match[1]), int(match[2] or 1)
        total = sum(counts) + each * times
        if not each or not times or total > untrusted.MAX_TASKS:
            raise ValueError(
                f"{name} is {untrusted.excerpt(text)}; every node has at least one "
                f"task, and all have at most {untrusted.MAX_TASKS:,}."
            )
        counts += [each] * times
    return counts


def _split(name: str, text: str) -> Iterator[str]:
    """Yields the entries between commas outside of brackets."""
    entry, depth = "", 0
    # One more comma, which ends the last entry.
    for character in text + ",":
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise _malformed_error(name, text)
        if character == "," and depth == 0:
            if not entry:
                raise _malformed_error(name, text)
            yield entry
            entry = ""
        else:
            entry += character
    if entry:
        raise _malformed_error(name, text)


def _expand(name: str, entry: str) -> Iterator[str]:
    parts = _PART.findall(entry)
    brackets = sum(part.startswith("[") for part in parts)
    if brackets > _MAX_BRACKETS:
        raise _malformed_error(name, entry)
    # `itertools.product` reads each of its arguments to the end before it yields
    # anything. So each range is bounded here, or a large one would take all memory.
    choices = [
        list(itertools.islice(_range(name, part), untrusted.MAX_TASKS + 1))
        if part.startswith("[")
        else [part]
        for part in parts
    ]
    return ("".join(chosen) for chosen in itertools.product(*choices))


def _range(name: str, bracket: str) -> Iterator[str]:
    for part in bracket[1:-1].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _malformed_error(name, bracket)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(
                f"{name} has the range {untrusted.excerpt(part)}, which runs backwards."
            )
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _malformed_error(name: str, text: str) -> ValueError:
    return ValueError(
        f"{name} must be a list of hosts such as 'n[1-3,7],m5', received "
        f"{untrusted.excerpt(text)}."
    )
