"""Finds this machine's part in a larger job of Slurm, Kubernetes or MPI."""

from __future__ import annotations

import enum
import os
import socket

from unisono._src.cli.launch import launch_plan
from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.cluster.resolvers import mpi, slurm, tf_config

INDEX = "JOB_COMPLETION_INDEX"
_SLURM_JOB = "SLURM_JOB_ID"
_SLURM_NODES = "SLURM_JOB_NUM_NODES"


class JobKind(enum.Enum):
    """The kind of larger job to take part in; AUTO finds it by its variables."""

    AUTO = "auto"
    NONE = "none"
    TF_CONFIG = "tf_config"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    MPI = "mpi"


def detect() -> JobKind:
    """Returns the kind of larger job that the environment shows, or NONE.

    Raises:
        RuntimeError: this is the script of a Slurm job with several nodes, which runs
            on the first of them only.
    """
    # TF_CONFIG comes first: somebody has set it on purpose for this program. Slurm
    # comes before MPI, because `srun` may set MPI's variables as well.
    if os.environ.get(tf_config.VARIABLE, "").strip() not in ("", "{}"):
        return JobKind.TF_CONFIG
    if slurm.is_in_step():
        return JobKind.SLURM
    if INDEX in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
        return JobKind.KUBERNETES
    if mpi.is_in_mpi():
        return JobKind.MPI
    if _SLURM_JOB in os.environ and os.environ.get(_SLURM_NODES, "1") != "1":
        raise RuntimeError(
            f"This is a Slurm job of {untrusted.excerpt(os.environ[_SLURM_NODES])} "
            "nodes, but not a step of it: this command would use the first node alone. "
            "Start it on all with `srun unisono launch ...`, or say --attach none."
        )
    return JobKind.NONE


def place(
    attach: JobKind,
    workers: int | None,
    port: int = 8888,
    nodes: int | None = None,
    service: str | None = None,
) -> launch_plan.WorkerPlacement:
    """Returns the workers to start here, for a larger job or for this machine alone.

    Args:
        attach: the kind of larger job.
        workers: how many workers to start here; one by default.
        port: the first port on each machine of a larger job.
        nodes: for Kubernetes, how many pods the job has.
        service: for Kubernetes, the headless service in front of the pods.

    Raises:
        RuntimeError: the environment is not that of the job.
        ValueError: a number or a name is missing or malformed.
    """
    chosen = detect() if attach is JobKind.AUTO else attach
    if chosen is JobKind.NONE:
        return launch_plan.local_placement(1 if workers is None else workers)
    if chosen is JobKind.TF_CONFIG:
        return _place_by_tf_config(workers)
    each = 1 if workers is None else workers
    if not 1 <= each <= launch_plan.MAX_WORKERS:
        raise ValueError(
            f"Expected 1 to {launch_plan.MAX_WORKERS} workers per machine, received "
            f"{each}."
        )
    if chosen is JobKind.SLURM:
        # `cluster_spec` sets CUDA_VISIBLE_DEVICES to this task's share, which the
        # workers inherit.
        step = slurm.SlurmClusterResolver(port_base=port, rpc_layer=None)
        return _expand(step.cluster_spec(), step.task_id, each, port)
    if chosen is JobKind.MPI:
        ranks = mpi.MPIClusterResolver(port_base=port)
        return _expand(ranks.cluster_spec(), ranks.task_id, each, port)
    return _place_by_kubernetes(each, port, nodes, service)


def _place_by_tf_config(workers: int | None) -> launch_plan.WorkerPlacement:
    config = tf_config.read()
    if workers not in (None, 1):
        raise ValueError(
            "TF_CONFIG is set and says what to start here, one task, but "
            f"{workers} workers were asked for. Unset it, or say --attach none."
        )
    if config.task_type is None or config.task_id is None:
        raise ValueError(
            "TF_CONFIG is set, but it has no task with a type and index. Add 'task', "
            "or say --attach none."
        )
    return launch_plan.WorkerPlacement(
        config.cluster, config.task_type, (config.task_id,), is_given=True
    )


def _expand(
    tasks: cluster_tasks.ClusterSpec, rank: int | None, each: int, port: int
) -> launch_plan.WorkerPlacement:
    """Returns `each` workers for every task of the job, at ports of their own."""
    addresses = []
    for index in tasks.task_indices("worker"):
        host, _, used = tasks.task_address("worker", index).rpartition(":")
        # Several tasks on one host have ports in a row; each now takes
        # as many as it has workers.
        first = port + (int(used) - port) * each
        untrusted.port("The last port of a machine", first + each - 1)
        addresses += [f"{host}:{first + i}" for i in range(each)]
    start = (rank or 0) * each
    cluster = cluster_tasks.ClusterSpec({"worker": addresses})
    mine = tuple(range(start, start + each))
    return launch_plan.WorkerPlacement(cluster, "worker", mine)


def _place_by_kubernetes(
    each: int, port: int, nodes: int | None, service: str | None
) -> launch_plan.WorkerPlacement:
    if nodes is None or service is None:
        raise ValueError(
            "Kubernetes does not tell a pod of its peers: say --nodes N, the "
            "completions of the Job, and --service NAME, its headless service."
        )
    count = untrusted.whole_number("--nodes", nodes, 1, untrusted.MAX_TASKS)
    if INDEX not in os.environ:
        raise RuntimeError(
            f"{INDEX} is not set: the Job needs `completionMode: Indexed`."
        )
    index = untrusted.whole_number(INDEX, os.environ[INDEX], 0, count - 1)
    host = socket.gethostname().partition(".")[0]
    suffix = f"-{index}"
    if not host.endswith(suffix):
        raise RuntimeError(
            f"This pod is called {untrusted.excerpt(host)}; a pod of an Indexed Job "
            f"with a subdomain is called after the Job, with '{suffix}' at the end."
        )
    name = host.removesuffix(suffix)
    untrusted.host("--service", service)
    pods = cluster_tasks.ClusterSpec(
        {"worker": [f"{name}-{i}.{service}:{port}" for i in range(count)]}
    )
    return _expand(pods, index, each, port)
