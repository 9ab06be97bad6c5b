"""Plans the command of each worker: its cluster, its devices, its environment."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import final

from unisono._src.cli.launch import worker_process
from unisono._src.cluster import accelerators, cluster_tasks
from unisono._src.cluster.resolvers import tf_config
from unisono._src.foundation import cpu_threads

# The variable that tells a worker how often the group was restarted.
RESTART = "UNISONO_RESTART"
LOOPBACK = "127.0.0.1"
# The variable in which Ray, and `distribute.Server`, look for the secret of a job.
TOKEN = "RAY_AUTH_TOKEN"
MAX_WORKERS = 1024
_FORCED = re.compile(r"\s*--xla_force_host_platform_device_count=\d+")


class Platform(enum.Enum):
    """The kind of devices of workers; AUTO takes GPUs where there are any."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"


@final
@dataclasses.dataclass(frozen=True)
class WorkerPlacement:
    """The cluster that workers belong to, and its tasks that are started here.

    Attributes:
        cluster: all tasks.
        job: the job of the tasks started here.
        mine: the indices of the tasks started here.
        is_local: whether the cluster is this machine alone.
        is_given: whether TF_CONFIG was set already; workers get it unchanged.
    """

    cluster: cluster_tasks.ClusterSpec
    job: str
    mine: tuple[int, ...]
    is_local: bool = False
    is_given: bool = False

    @property
    def count(self) -> int:
        """The number of tasks of the job; an evaluator's is outside the cluster."""
        known = self.job in self.cluster.jobs
        return self.cluster.num_tasks(self.job) if known else len(self.mine)

    def tf_config(self, index: int) -> str:
        """Returns TF_CONFIG for one of the tasks started here."""
        if self.is_given:
            return os.environ[tf_config.VARIABLE]
        task = {"type": self.job, "index": index}
        return json.dumps({"cluster": self.cluster.as_dict(), "task": task})


@final
@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices that each worker gets.

    Attributes:
        platform: the kind of devices.
        each: the number of devices per worker; None for an equal share of the GPUs.
    """

    platform: Platform = Platform.AUTO
    each: int | None = None

    def __post_init__(self) -> None:
        if self.each is not None and not 1 <= self.each <= MAX_WORKERS:
            raise ValueError(
                f"A worker must have 1 to {MAX_WORKERS} devices, received {self.each}."
            )

    def environments(
        self, count: int, environ: Mapping[str, str]
    ) -> list[dict[str, str]]:
        """Returns the variables to set for each of `count` workers on this machine.

        Raises:
            ValueError: there are too few GPUs, or a TPU would have to be divided.
        """
        gpus = accelerators.visible_gpus() if self._may_use_gpus(environ) else []
        if gpus or self.platform is Platform.GPU:
            return self._share(gpus, count)
        if self._uses_tpu(environ):
            return self._whole_tpu(count)
        return [self._cpu_variables(environ) for _ in range(count)]

    def _may_use_gpus(self, environ: Mapping[str, str]) -> bool:
        if self.platform is not Platform.AUTO:
            return self.platform is Platform.GPU
        # JAX computes on the first platform of the list.
        return environ.get("JAX_PLATFORMS", "").lower().split(",")[0] != "cpu"

    def _uses_tpu(self, environ: Mapping[str, str]) -> bool:
        if self.platform is not Platform.AUTO:
            return self.platform is Platform.TPU
        on_cpu = environ.get("JAX_PLATFORMS", "").lower().split(",")[0] == "cpu"
        return not on_cpu and "TPU" in accelerators.count()

    def _whole_tpu(self, count: int) -> list[dict[str, str]]:
        if count > 1 or self.each is not None:
            raise ValueError(
                "The TPU chips of a machine belong to one worker: start one, without "
                "-d, or use the CPU with --platform cpu."
            )
        return [{}]

    def _share(self, gpus: Sequence[str], count: int) -> list[dict[str, str]]:
        each = self.each or len(gpus) // count
        if not each or each * count > len(gpus):
            raise ValueError(
                f"{count} worker(s) × {max(each, 1)} GPU(s) were asked for, but "
                f"{len(gpus)} can be seen here. Start fewer workers, or use the CPU "
                "with --platform cpu."
            )
        return [
            {accelerators.VISIBLE_GPUS: ",".join(gpus[i * each : (i + 1) * each])}
            for i in range(count)
        ]

    def _cpu_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        added = {"JAX_PLATFORMS": "cpu"} if self.platform is Platform.CPU else {}
        if self.each is None:
            return added
        added |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(self.each)}
        if "XLA_FLAGS" in environ:
            # XLA's flag would win over the number.
            added["XLA_FLAGS"] = _FORCED.sub("", environ["XLA_FLAGS"])
        if self.each > 1:
            # `devices.start` sets this, too; the program may start JAX without it.
            added[cpu_threads.VARIABLE] = str(
                cpu_threads.count_threads(self.each, environ)
            )
        return added


def local_placement(count: int) -> WorkerPlacement:
    """Returns `count` workers on this machine, at free ports of the loopback address.

    Raises:
        ValueError: the number is too small or too large.
    """
    cluster = cluster_tasks.ClusterSpec({"worker": _free_addresses(count)})
    return WorkerPlacement(cluster, "worker", tuple(range(count)), is_local=True)


def _free_addresses(count: int) -> list[str]:
    """Returns addresses of this machine that nobody uses."""
    if not 1 <= count <= MAX_WORKERS:
        raise ValueError(
            f"1 to {MAX_WORKERS} workers can be started here, received {count}."
        )
    with contextlib.ExitStack() as open_sockets:
        # All sockets stay open until each has a port, so that no port is chosen twice.
        ports = []
        for _ in range(count):
            probe = open_sockets.enter_context(socket.socket())
            probe.bind((LOOPBACK, 0))
            ports.append(probe.getsockname()[1])
    return [f"{LOOPBACK}:{port}" for port in ports]


def plan_server_job(
    argv: Sequence[str], workers: int, servers: int, devices: Devices, restart: int = 0
) -> list[worker_process.Command]:
    """Returns the commands of a chief, parameter servers and workers on this machine.

    Args:
        argv: the program and its arguments, the same for all.
        workers: how many workers there are.
        servers: how many parameter servers there are.
        devices: the devices that each worker gets; the others compute on the CPU.
        restart: how often the job was started before.

    Raises:
        ValueError: a number is too small or too large, or there are too few devices.
    """
    free = _free_addresses(1 + workers + servers)
    jobs = {"chief": free[:1], "worker": free[1 : 1 + workers]}
    cluster = cluster_tasks.ClusterSpec(jobs | {"ps": free[1 + workers :]})
    # A secret that the tasks share; nobody else can take part in the job.
    secret = {TOKEN: os.environ.get(TOKEN) or secrets.token_hex(32)}
    made = []
    for job in ("chief", "ps", "worker"):
        count = cluster.num_tasks(job)
        placement = WorkerPlacement(cluster, job, tuple(range(count)), is_local=True)
        own = devices if job == "worker" else Devices(Platform.CPU)
        made += [
            dataclasses.replace(c, env=c.env | secret, serves=job != "chief")
            for c in plan_commands(argv, placement, own, restart)
        ]
    return made


def plan_commands(
    argv: Sequence[str],
    placement: WorkerPlacement,
    devices: Devices,
    restart: int = 0,
    descriptors: Sequence[Sequence[int]] = (),
) -> list[worker_process.Command]:
    """Returns the commands to start here, one for each worker.

    Args:
        argv: the program and its arguments, the same for all.
        placement: the cluster, and its tasks that are started here.
        devices: the devices that each worker gets.
        restart: how often the group was started before.
        descriptors: for each worker, file descriptors to inherit, whose numbers are
            appended to its arguments.

    Raises:
        ValueError: there are too few devices, or TF_CONFIG is malformed.
    """
    given = descriptors or [()] * len(placement.mine)
    shares = devices.environments(len(placement.mine), os.environ)
    made = []
    for index, share, extra in zip(placement.mine, shares, given, strict=True):
        env = {
            **os.environ,
            # Output to a pipe is held back by default, and would be lost in a crash.
            "PYTHONUNBUFFERED": "1",
            **share,
            tf_config.VARIABLE: placement.tf_config(index),
            RESTART: str(restart),
        }
        # The worker would refuse a malformed value; an error here is easier to read.
        tf_config.parse(env[tf_config.VARIABLE])
        made.append(
            worker_process.Command(
                index,
                placement.count,
                (*argv, *(str(d) for d in extra)),
                env,
                tuple(extra),
                placement.job,
            )
        )
    return made
