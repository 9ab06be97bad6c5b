"""The lockstep executor: replicas take turns and wait for each other at merge points.

One greenlet per replica. Greenlets share the thread, so JAX's trace state stays
right, and the same code runs eagerly and inside a program being traced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax

from unisono._src import ambient, collectives, creation, errors
from unisono._src.topology import Topology


class _Replica:
    """One replica between its turns."""

    def __init__(self, index: int, frame: ambient.Frame, device: Any) -> None:
        self.index = index
        self.frame = frame
        self.device = device
        self.created = 0
        self.greenlet: Any = None
        self.request: Any = None
        self.result: Any = None


def run(
    topology: Topology,
    enter: Callable[[int, collectives.LockstepPort], ambient.Frame],
    calls: Sequence[Callable[[], Any]],
    is_traced: bool,
) -> list[Any]:
    """Call each replica's function in turn, up to the next merge point, and so on.

    Args:
        topology: the replicas.
        enter: gives the frame of a replica, from its index and port.
        calls: one function per replica.
        is_traced: whether a program is being made; else each replica computes on its
            own device.

    Returns:
        One result per replica.
    """
    import greenlet

    hub = greenlet.getcurrent()
    creations = creation.Creations()
    base = collectives.trace_state()
    replicas = []
    for i, call in enumerate(calls):
        port = collectives.LockstepPort(i, len(calls), hub.switch, base)
        port.creations = creations
        device = None if is_traced else topology.devices[i]
        replica = _Replica(i, enter(i, port), device)
        replica.greenlet = greenlet.greenlet(call)
        replicas.append(replica)
    try:
        return _rounds(replicas, creations)
    finally:
        for replica in replicas:
            _stop(replica)


def _rounds(replicas: list[_Replica], creations: creation.Creations) -> list[Any]:
    answers: Sequence[Any] | None = None
    while True:
        for i, replica in enumerate(replicas):
            _resume(replica, creations, () if answers is None else (answers[i],))
        waiting = [r for r in replicas if not r.greenlet.dead]
        if not waiting:
            return [r.result for r in replicas]
        if len(waiting) < len(replicas):
            raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
        combine = replicas[0].request[0]
        answers = combine([r.request[1] for r in replicas])


def _resume(
    replica: _Replica, creations: creation.Creations, answer: tuple[Any, ...]
) -> None:
    creations.start(replica.index, replica.created)
    outer = ambient.swap(replica.frame)
    place = contextlib.nullcontext()
    if replica.device is not None:
        place = jax.default_device(replica.device)
    try:
        with place:
            given = replica.greenlet.switch(*answer)
    finally:
        replica.frame = ambient.swap(outer)
        replica.created = creations.next
    if replica.greenlet.dead:
        replica.result = given
    else:
        replica.request = given


def _stop(replica: _Replica) -> None:
    """Unwind a replica that will not be resumed."""
    if replica.greenlet.dead or not replica.greenlet:
        return
    outer = ambient.swap(replica.frame)
    try:
        with contextlib.suppress(errors.ReplicaStop):
            replica.greenlet.throw(errors.ReplicaStop)
    finally:
        ambient.swap(outer)
