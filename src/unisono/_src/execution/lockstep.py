"""The lockstep executor: replicas take turns and wait for each other at merge points.

One greenlet per replica. Greenlets share the thread, so JAX's trace state stays
right, and the same code runs eagerly and inside a program being traced.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, final

from jax._src import config

from unisono._src.execution import contexts
from unisono._src.foundation import ambient, errors, library_hooks
from unisono._src.machines.topology import Topology
from unisono._src.state import frames, trace_versions
from unisono._src.values import collectives

_eager = trace_versions.EAGER

# JAX's settings that a thread can have of its own, such as `with jax.debug_nans(True)`.
# A replica may be paused inside such a block, which must not hold for the others. Their
# getters are compiled code: asking all hundred of them takes a few microseconds.
_STATES: tuple[Any, ...] = tuple(
    s for s in config.config_states.values() if hasattr(s, "get_local")
)
_GETTERS = tuple(s.get_local for s in _STATES)
_DEVICE = _STATES.index(config.config_states["jax_default_device"])

# A setting, and the value to give it.
_Changes = list[tuple[Any, Any]]


def _settings() -> tuple[Any, ...]:
    return tuple(map(operator.call, _GETTERS))


def _changes(before: Sequence[Any], after: Sequence[Any]) -> _Changes:
    """What to set to get from some settings to others."""
    every = zip(_STATES, before, after, strict=True)
    return [(state, new) for state, old, new in every if old is not new]


@final
class _Replica:
    """One replica between its turns.

    Attributes:
        frame: the context frame that it runs in.
        settings: JAX's settings as it left them.
        enter: what to set when it goes on.
        leave: what to set when others go on.
        locals: the thread-local objects of libraries as it left them, or None.
        request: what it wants to merge, while it waits.
        result: what its function returned.
    """

    def __init__(
        self, frame: ambient.Frame, settings: tuple[Any, ...], greenlet: Any
    ) -> None:
        self.frame = frame
        self.settings = settings
        self.enter: _Changes = []
        self.leave: _Changes = []
        self.locals: library_hooks.Locals | None = None
        self.greenlet = greenlet
        self.request: Any = None
        self.result: Any = None


@final
class _Round:
    """What replicas that take turns have in common.

    Attributes:
        state: the frame of variable values.
        settings: JAX's settings around the replicas.
        locals: the thread-local objects of libraries around them; None if no library
            is loaded that has any.
    """

    def __init__(self) -> None:
        self.state = frames.frame()
        self.settings = _settings()
        self.locals = _library_locals()


def _library_locals() -> library_hooks.Locals | None:
    if sys.modules.keys().isdisjoint(library_hooks.known):
        return None
    return library_hooks.Locals.taken()


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
    common = _Round()
    topology = placement.topology
    is_eager = not common.state.is_compiled
    turns = topology.local if is_eager else range(topology.replicas)
    made: list[Any] = []
    replicas: list[_Replica] = []
    for i, call in zip(turns, calls, strict=True):
        port = collectives.LockstepPort(i, topology, turns, hub.switch, made)
        frame = contexts.frame_of_replica(placement, i, port, i)
        replica = _Replica(frame, common.settings, greenlet.greenlet(call))
        if is_eager:
            _give_device(replica, topology.devices[i], common)
        replicas.append(replica)
    try:
        return _rounds(replicas, common)
    finally:
        for replica in replicas:
            if replica.greenlet and not replica.greenlet.dead:
                _stop(replica, common)


def _give_device(replica: _Replica, device: Any, common: _Round) -> None:
    """Let a replica make its arrays on its own device."""
    state, around = _STATES[_DEVICE], common.settings
    replica.settings = (*around[:_DEVICE], device, *around[_DEVICE + 1 :])
    replica.enter, replica.leave = [(state, device)], [(state, around[_DEVICE])]


def turns_of(topology: Topology) -> range:
    """The replicas that take turns here: those of this process, in a program all."""
    if frames.frame().is_compiled:
        return range(topology.replicas)
    return topology.local


def _rounds(replicas: list[_Replica], common: _Round) -> list[Any]:
    answers: Sequence[Any] | None = None
    while True:
        waiting = 0
        for i, replica in enumerate(replicas):
            _resume(replica, common, () if answers is None else (answers[i],))
            waiting += not replica.greenlet.dead
        if not waiting:
            return [r.result for r in replicas]
        if waiting < len(replicas):
            raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
        combine = replicas[0].request[0]
        answers = combine([r.request[1] for r in replicas])


def _resume(replica: _Replica, common: _Round, answer: tuple[Any, ...]) -> None:
    """Let a replica go on up to its next merge point, or to its end."""
    outer = ambient.swap(replica.frame)
    # To each replica variables look different than to the one before it.
    _set_versions_apart(common)
    for state, value in replica.enter:
        state.set_local(value)
    if replica.locals is not None:
        replica.locals.apply()
    try:
        given = replica.greenlet.switch(*answer)
    finally:
        _take_leave(replica, common)
        _set_versions_apart(common)
        replica.frame = ambient.swap(outer)
    if replica.greenlet.dead:
        replica.result = given
    else:
        replica.request = given


def _set_versions_apart(common: _Round) -> None:
    """Keep JAX from giving one replica what it remembers of another (decision 0008)."""
    if common.state.is_compiled:
        common.state.versions.advance()
    elif _eager.has_read:
        _eager.changed()


def _take_leave(replica: _Replica, common: _Round) -> None:
    """Remember the surroundings of a replica, and go back to those of all."""
    now = _settings()
    if not all(map(operator.is_, now, replica.settings)):
        # It is paused inside a block that changes settings, or has left one.
        replica.settings = now
        replica.enter = _changes(common.settings, now)
        replica.leave = _changes(now, common.settings)
    for state, value in replica.leave:
        state.set_local(value)
    if sys.modules.keys().isdisjoint(library_hooks.known):
        return
    replica.locals = library_hooks.Locals.taken()
    if common.locals is None:
        # A replica has just loaded the library: around it nothing was written yet.
        common.locals = replica.locals.blank()
    common.locals.apply()


def _stop(replica: _Replica, common: _Round) -> None:
    """Unwind a replica that will not be resumed."""
    outer = ambient.swap(replica.frame)
    if replica.locals is not None:
        replica.locals.apply()
    try:
        with contextlib.suppress(errors.ReplicaStop):
            replica.greenlet.throw(errors.ReplicaStop)
    finally:
        if common.locals is not None:
            common.locals.apply()
        ambient.swap(outer)
