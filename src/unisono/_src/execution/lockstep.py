"""The lockstep executor: replicas take turns and wait for each other at merge points.

One greenlet per replica. Greenlets share the thread, so JAX's trace state stays
right, and the same code runs eagerly and inside a program being traced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
from jax._src import config

from unisono._src.execution import contexts
from unisono._src.foundation import ambient, errors, library_hooks
from unisono._src.machines.topology import Topology
from unisono._src.state import creation, frames, trace_versions
from unisono._src.values import collectives


@final
class _Settings:
    """JAX's settings of this thread, such as ``with jax.debug_nans(True)``.

    A replica may be paused inside such a block; the block must not hold for others.
    The default device is not among them: each replica has its own.
    """

    def __init__(self, values: dict[Any, Any]) -> None:
        self._values = values

    @classmethod
    def taken(cls) -> _Settings:
        """The settings as they are now."""
        return cls({s: s.get_local() for s in _STATES})

    def apply(self) -> None:
        """Make them so again."""
        for setting, value in self._values.items():
            if setting.get_local() is not value:
                setting.set_local(value)


_STATES: list[Any] = [
    s
    for name, s in config.config_states.items()
    if hasattr(s, "get_local") and name != "jax_default_device"
]


@final
class _Replica:
    """One replica between its turns."""

    def __init__(self, index: int, frame: ambient.Frame, device: Any) -> None:
        self.index = index
        self.frame = frame
        self.device = device
        self.created = 0
        self.settings = _Settings({})
        self.locals = library_hooks.Locals([])
        self.greenlet: Any = None
        self.request: Any = None
        self.result: Any = None


def run(placement: frames.Placement, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call each replica's function in turn, up to the next merge point, and so on.

    Unless a program is being made, each replica computes on its own device.

    Args:
        placement: whose replicas they are.
        calls: one function per replica of `turns_of`.

    Returns:
        One result per replica.
    """
    import greenlet

    hub = greenlet.getcurrent()
    creations = creation.Creations()
    is_traced = frames.frame().is_compiled
    replicas: list[_Replica] = []
    topology = placement.topology
    turns = turns_of(topology)
    for i, call in zip(turns, calls, strict=True):
        port = collectives.LockstepPort(i, topology, turns, hub.switch)
        port.creations = creations
        device = None if is_traced else topology.devices[i]
        replica = _Replica(len(replicas), _frame(placement, i, port, device), device)
        replica.greenlet = greenlet.greenlet(call)
        replicas.append(replica)
    try:
        return _rounds(replicas, creations)
    finally:
        for replica in replicas:
            _stop(replica)


def turns_of(topology: Topology) -> range:
    """The replicas that take turns here: those of this process, in a program all."""
    if frames.frame().is_compiled:
        return range(topology.replicas)
    return topology.local


def _frame(
    placement: frames.Placement, index: int, port: Any, device: Any
) -> ambient.Frame:
    with _on(device):
        replica_id = contexts.replica_id(index)
    with contexts.replica_frame(placement, replica_id, port, copy=index) as frame:
        return frame


def _on(device: Any) -> Any:
    return contextlib.nullcontext() if device is None else jax.default_device(device)


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
    outer, settings = ambient.swap(replica.frame), _Settings.taken()
    others = library_hooks.Locals.taken()
    try:
        kept = frames.frame()
        apart = trace_versions.EAGER.apart(kept.is_compiled)
        with _on(replica.device), kept.versions.fresh(), apart:
            replica.settings.apply()
            replica.locals.apply()
            given = replica.greenlet.switch(*answer)
            replica.settings = _Settings.taken()
            replica.locals = library_hooks.Locals.taken()
            settings.apply()
    finally:
        settings.apply()
        others.apply()
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
    outer, others = ambient.swap(replica.frame), library_hooks.Locals.taken()
    replica.locals.apply()
    try:
        with contextlib.suppress(errors.ReplicaStop):
            replica.greenlet.throw(errors.ReplicaStop)
    finally:
        others.apply()
        ambient.swap(outer)
