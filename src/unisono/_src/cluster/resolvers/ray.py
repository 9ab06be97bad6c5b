"""Finds the cluster of workers that Ray runs."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import socket
import sys
import time
from typing import Any, final

from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.cluster.resolvers import base

_GROUP = re.compile(r"[A-Za-z0-9_.-]{1,100}")
# The namespace in Ray's key-value store.
_SPACE = b"unisono"
# Seconds between two looks at the store.
_PAUSE = 0.05


class RayClusterResolver(base.ClusterResolver):
    """Lets the workers of a Ray program find each other; each is a ``worker``.

    Create one in every task or actor. Each chooses a free port on its node, writes its
    address to Ray's key-value store, and waits until all workers have seen each other.
    An address that an earlier start left in the store is therefore not used. Inside Ray
    Train, rank and size are known; elsewhere, pass them. Nothing is pickled.

    >>> from unittest import mock
    >>> ray = mock.MagicMock()  # Your programs leave `client` out.
    >>> ray.util.get_node_ip_address.return_value = "127.0.0.1"
    >>> resolver = RayClusterResolver(task_id=0, num_workers=1, client=ray)
    >>> resolver.task_type, resolver.task_id, resolver.cluster_spec().jobs
    ('worker', 0, ['worker'])

    Args:
        task_id: the rank of this worker.
        num_workers: how many workers there are.
        group: a name that these workers share; you only need it if one Ray job has
            several groups at the same time.
        rpc_layer: the protocol that `master` puts in front of addresses.
        timeout_seconds: how long to wait for the other workers.
        client: the module ``ray``; by default the one that the program has imported.

    Raises:
        RuntimeError: Ray is not in use, or nothing says how many workers there are.
        TimeoutError: a worker did not appear in time; the message says which.
        ValueError: an argument, or an address that a worker has written, is malformed.
    """

    def __init__(
        self,
        task_id: int | None = None,
        num_workers: int | None = None,
        group: str = "workers",
        rpc_layer: str | None = None,
        timeout_seconds: float = 60.0,
        client: object = None,
    ) -> None:
        ray = _find_ray(client)
        if task_id is None or num_workers is None:
            task_id, num_workers = _train_rank(ray)
            self._source = "ray.train.get_context()"
        else:
            self._source = base.CONSTRUCTOR
        most = untrusted.MAX_TASKS
        size = untrusted.whole_number("num_workers", num_workers, 1, most)
        rank = untrusted.whole_number("task_id", task_id, 0, size - 1)
        self._task_type, self._task_id, self._rpc_layer = "worker", rank, rpc_layer
        self._addresses = _meet(ray, _key(ray, group), rank, size, timeout_seconds)

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the workers that were found when this resolver was created."""
        return cluster_tasks.ClusterSpec({"worker": self._addresses})

    def _sources(self) -> dict[str, str]:
        return {
            "": self._source,
            "rpc_layer": base.CONSTRUCTOR,
            "cluster": "Ray's key-value store",
        }


def _find_ray(client: Any) -> Any:
    # A program that runs in Ray has imported it already, so this looks it up only.
    ray = client or sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        raise RuntimeError(
            "RayClusterResolver works inside a Ray program: `pip install ray`, then "
            "make it in a Ray task or actor, or after ray.init()."
        )
    return ray


def _train_rank(ray: object) -> tuple[int, int]:
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
            f"The group is {untrusted.excerpt(group)}; use up to 100 letters, digits, "
            "'_', '-' or '.'."
        )
    return f"{ray.get_runtime_context().get_job_id()}/{group}"


def _meet(ray: Any, key: str, rank: int, size: int, seconds: float) -> list[str]:
    """Returns every worker's address, once all workers have seen one another.

    Each worker makes up a random number, `own`, and writes down those that it has
    read. A worker that has written down this one's number is of the same start.
    """
    store = ray.experimental.internal_kv
    host = ray.util.get_node_ip_address()
    # An IPv6 address has colons of its own.
    mine = f"{f'[{host}]' if ':' in host else host}:{_free_port(host)}"
    own, seen = secrets.token_hex(8), dict[int, str]()
    deadline = time.monotonic() + seconds
    while True:
        note = {"own": own, "address": mine, "seen": seen}
        # Ray has no public key-value store; its own libraries use this one, with
        # functions of these names (`_read_note` has the other).
        store._internal_kv_put(  # noqa: SLF001
            f"{key}/{rank}".encode(), json.dumps(note).encode(), True, namespace=_SPACE
        )
        peers = {i: _read_note(store, key, i) for i in range(size) if i != rank}
        missing = [i for i, p in peers.items() if p is None or p.seen.get(rank) != own]
        known = {i: p.own for i, p in peers.items() if p is not None}
        # The numbers must also be in the note that the others can read by now, or one
        # of them would wait for this worker after it has gone on.
        if not missing and known == seen:
            found = {i: p.address for i, p in peers.items() if p} | {rank: mine}
            return [found[i] for i in range(size)]
        seen = known
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"Worker {rank} waited {seconds:g} s for worker(s) "
                f"{untrusted.excerpt(missing)} of {size}; did Ray start all of them?"
            )
        time.sleep(_PAUSE)


@final
@dataclasses.dataclass(frozen=True)
class _Peer:
    """The note that another worker left in the store."""

    own: str
    address: str
    seen: dict[int, str]


def _read_note(store: Any, key: str, rank: int) -> _Peer | None:
    place = f"{key}/{rank}".encode()
    left = store._internal_kv_get(place, namespace=_SPACE)  # noqa: SLF001
    if left is None:
        return None
    name = f"What worker {rank} left in Ray's store"
    text = untrusted.bounded_text(name, left.decode("utf-8", "replace"))
    try:
        note = json.loads(text)
        seen = {int(i): str(own) for i, own in note["seen"].items()}
        own, address = str(note["own"]), note["address"]
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise ValueError(f"{name} is malformed: {untrusted.excerpt(text)}.") from None
    return _Peer(own, untrusted.address(f"The address of worker {rank}", address), seen)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
