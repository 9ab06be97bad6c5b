"""The cluster of workers that Ray runs."""

from __future__ import annotations

import re
import socket
import sys
import time
from typing import Any

from unisono._src.cluster import spec, untrusted
from unisono._src.cluster.resolvers import base

_GROUP = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_NAMESPACE = b"unisono"
_PAUSE = 0.05


class RayClusterResolver(base.ClusterResolver):
    """Lets the workers of a Ray program find one another; each is a ``worker``.

    Make one in every task or actor. Each chooses a free port on its node, leaves its
    address in Ray's key-value store, and waits for the others'. Inside Ray Train rank
    and size are known; elsewhere pass them. Nothing is pickled.

    Args:
        task_id: the rank of this worker.
        num_workers: how many there are.
        group: a name that the workers of one start share, and no other start of the
            same Ray job uses; by default Ray Train's run, or ``workers``.
        rpc_layer: the protocol that `master` puts in front of addresses.
        timeout_seconds: how long to wait for the others.
        client: the module ``ray``; by default the one that the program has imported.

    Raises:
        RuntimeError: Ray is not in use, or nothing says how many workers there are.
        TimeoutError: a worker did not come; the message says which.
        ValueError: an argument or an address that a worker left is malformed.
    """

    def __init__(
        self,
        task_id: int | None = None,
        num_workers: int | None = None,
        group: str | None = None,
        rpc_layer: str | None = None,
        timeout_seconds: float = 60.0,
        client: Any = None,
    ) -> None:
        ray = _running(client)
        if task_id is None or num_workers is None:
            task_id, num_workers = _train_rank(ray)
            self._source = "ray.train.get_context()"
        else:
            self._source = "the constructor's arguments"
        most = untrusted.MAX_TASKS
        size = untrusted.whole_number("num_workers", num_workers, 1, most)
        rank = untrusted.whole_number("task_id", task_id, 0, size - 1)
        self._task_type, self._task_id, self._rpc_layer = "worker", rank, rpc_layer
        self._addresses = _meet(
            ray, _key(ray, group or "workers"), rank, size, timeout_seconds
        )

    def cluster_spec(self) -> spec.ClusterSpec:
        """All workers, as they met."""
        return spec.ClusterSpec({"worker": self._addresses})

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """The address of a task, by default this one."""
        return self._master_of_task(task_type, task_id, rpc_layer)

    def _sources(self) -> dict[str, str]:
        return {
            "": self._source,
            "rpc_layer": "the constructor's arguments",
            "cluster": "Ray's key-value store",
        }


def _running(client: Any) -> Any:
    # Looked up, not imported: a program that runs in Ray has imported it.
    ray = client or sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        raise RuntimeError(
            "RayClusterResolver works inside a Ray program: `pip install ray`, then "
            "make it in a Ray task or actor, or after ray.init()."
        )
    return ray


def _train_rank(ray: Any) -> tuple[int, int]:
    train = sys.modules.get("ray.train") or getattr(ray, "train", None)
    try:
        context = train.get_context()  # type: ignore[union-attr]
        rank, size = context.get_world_rank(), context.get_world_size()
    except (AttributeError, RuntimeError):
        rank = size = None
    if rank is None or size is None:
        raise RuntimeError(
            "This is no worker of Ray Train, so Ray does not say which worker this is: "
            "pass task_id= and num_workers=."
        )
    return rank, size


def _key(ray: Any, group: str) -> str:
    if not _GROUP.fullmatch(group):
        raise ValueError(
            f"The group is {untrusted.shown(group)}; use up to 100 letters, digits, "
            "'_', '-' or '.'."
        )
    return f"{ray.get_runtime_context().get_job_id()}/{group}"


def _meet(ray: Any, key: str, rank: int, size: int, seconds: float) -> list[str]:
    store = ray.experimental.internal_kv
    host = ray.util.get_node_ip_address()
    mine = f"{f'[{host}]' if ':' in host else host}:{_free_port(host)}"
    store._internal_kv_put(
        f"{key}/{rank}".encode(), mine.encode(), True, namespace=_NAMESPACE
    )
    deadline = time.monotonic() + seconds
    found: dict[int, str] = {rank: mine}
    while True:
        for other in set(range(size)) - found.keys():
            left = store._internal_kv_get(
                f"{key}/{other}".encode(), namespace=_NAMESPACE
            )
            if left is not None:
                found[other] = untrusted.address(
                    f"The address of worker {other}", left.decode("ascii", "replace")
                )
        if len(found) == size:
            return [found[i] for i in range(size)]
        if time.monotonic() > deadline:
            missing = sorted(set(range(size)) - found.keys())
            raise TimeoutError(
                f"Worker {rank} waited {seconds:g} s for worker(s) "
                f"{untrusted.shown(missing)} of {size}; did Ray start all of them?"
            )
        time.sleep(_PAUSE)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
