"""The lockstep executor: replicas take turns and wait for each other at merge points.

Each replica runs in a greenlet of its own. Greenlets share the thread, so JAX's trace
state stays right, and the same code runs eagerly and inside a program being traced
(decision 0004).
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import jax

from unisono._src.execution import contexts
from unisono._src.foundation import ambient, errors, jax_internals, library_hooks, nest
from unisono._src.machines.topology import Topology
from unisono._src.state import frames, storage, trace_versions
from unisono._src.values import jax_tapes, ports

if TYPE_CHECKING:
    # Loaded on first use: programs that never run in lockstep do not need it.
    from greenlet import greenlet as Greenlet

_eager = trace_versions.EAGER
_log = logging.getLogger("unisono")

# JAX's settings that a thread can have of its own, such as `with jax.debug_nans(True)`.
# A replica may be paused inside such a block, which must not hold for the others. Their
# getters are compiled code: calling all hundred of them takes a few microseconds.
_STATES = tuple(jax_internals.list_settings())
_GETTERS = tuple(s.get_local for s in _STATES)
_DEVICE = _STATES.index(jax_internals.find_setting("jax_default_device"))

# Where JAX keeps the names that the operations of a thread get. A replica may be paused
# inside a `jax.named_scope`, or in the backward pass of a gradient, which names them.
_NAMES = jax_internals.operation_names

# Pairs of a setting and the value to give it.
_Changes = list[tuple[Any, Any]]


def _read_settings() -> tuple[Any, ...]:
    """Return the current values of JAX's settings."""
    return tuple(map(operator.call, _GETTERS))


def _find_changes(before: Sequence[Any], after: Sequence[Any]) -> _Changes:
    """Return the settings to change to get from `before` to `after`."""
    every = zip(_STATES, before, after, strict=True)
    return [(state, new) for state, old, new in every if old is not new]


@final
@dataclasses.dataclass(eq=False)
class _Replica:
    """A replica and its surroundings, kept between its turns.

    Attributes:
        frame: the context frame that it runs in.
        port: how it meets the others.
        settings: JAX's settings as it left them.
        enter: the settings to change when it resumes.
        leave: the settings to change when it pauses.
        names: the names that JAX gives its operations, as it left them.
        locals: the thread-local objects of libraries as it left them, or None.
        greenlet: the greenlet that its function runs in.
        request: while it waits, the function that merges and its own payload.
        result: what its function returned.
    """

    frame: ambient.Frame
    port: ports.LockstepPort
    settings: tuple[Any, ...]
    greenlet: Greenlet
    enter: _Changes = dataclasses.field(default_factory=list)
    leave: _Changes = dataclasses.field(default_factory=list)
    names: Any = dataclasses.field(default_factory=lambda: _NAMES.context)
    locals: library_hooks.ThreadLocals | None = None
    request: Any = None
    result: Any = None


@final
class _RunContext:
    """The surroundings of `Strategy.run`, in which all its replicas start.

    Attributes:
        state: the frame of variable values.
        settings: JAX's settings.
        names: the names that JAX gives operations.
        locals: the thread-local objects of libraries; None if no library that has any
            is loaded.
    """

    def __init__(self) -> None:
        self.state: frames.StateFrame = ambient.current().state or frames.EAGER
        self.settings = _read_settings()
        self.names = _NAMES.context
        self.locals = _library_locals()


def _library_locals() -> library_hooks.ThreadLocals | None:
    """Return the thread-local objects of libraries; None if there are none."""
    if sys.modules.keys().isdisjoint(library_hooks.known):
        return None
    return library_hooks.ThreadLocals.capture()


def run(placement: storage.Placement, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run each replica's function in turn, from one merge point to the next.

    Unless a program is being traced, each replica computes on its own device.

    Args:
        placement: the placement of the strategy that runs the replicas.
        calls: one function for each replica of `replicas_in_turn`.

    Returns:
        One result for each replica.

    Raises:
        RuntimeError: some replicas reach a merge point, and others return.
    """
    # Loaded on first use: programs that never run in lockstep do not need it.
    import greenlet

    hub = greenlet.getcurrent()
    common = _RunContext()
    topology = placement.topology
    is_eager = not common.state.is_compiled
    turns = topology.local if is_eager else range(topology.replicas)
    # Variables that replicas create: the first replica makes each, the others find it.
    made: list[Any] = []
    replicas: list[_Replica] = []
    for i, call in zip(turns, calls, strict=True):
        port = ports.LockstepPort(i, topology, turns, hub.switch, made)
        frame = contexts.frame_of_replica(placement, i, port, i)
        port.creators = len(frame.creators)
        if is_eager:
            # As in TensorFlow, whose eager replicas are threads that begin without it.
            frame = frame._replace(names="")
        replica = _Replica(frame, port, common.settings, greenlet.greenlet(call))
        if is_eager:
            _give_device(replica, topology.devices[i], common)
        else:
            replica.names = _extend_names(common.names, replica_scope(i))
        replicas.append(replica)
    try:
        return _run_rounds(replicas, common)
    finally:
        # A greenlet is true once it has started and until it ends.
        waiting = [r for r in replicas if r.greenlet and not r.greenlet.dead]
        if waiting:
            _stop_all(waiting, common)


def replica_scope(index: int | str) -> str:
    """Return the name scope that the operations of a replica get in a program."""
    return f"replica_{index}"


def _extend_names(names: Any, scope: str) -> Any:
    """Return the names that JAX gives operations in a further scope."""
    return names.replace(name_stack=names.name_stack.extend(scope))


def _give_device(replica: _Replica, device: jax.Device, common: _RunContext) -> None:
    """Make a replica's device the default for the arrays that it makes."""
    state, around = _STATES[_DEVICE], common.settings
    replica.settings = (*around[:_DEVICE], device, *around[_DEVICE + 1 :])
    replica.enter, replica.leave = [(state, device)], [(state, around[_DEVICE])]


def replicas_in_turn(topology: Topology) -> range:
    """Return the numbers of the replicas that take turns in this process.

    These are its own replicas; while a program is traced, they are all replicas.
    """
    state = ambient.current().state or frames.EAGER
    return range(topology.replicas) if state.is_compiled else topology.local


def _run_rounds(replicas: list[_Replica], common: _RunContext) -> list[Any]:
    """Resume the replicas in turn, and merge what they ask for, until all return."""
    # One answer for each replica; None in the first round, which starts the functions:
    # they take no arguments. Later rounds give `hub.switch` its result.
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
        # All replicas ask for the same merge; the first one's function does it.
        combine = replicas[0].request[0]
        answers = combine([r.request[1] for r in replicas])


def _resume(replica: _Replica, common: _RunContext, answer: tuple[Any, ...]) -> None:
    """Run a replica up to its next merge point, or to its end."""
    outer = ambient.swap(replica.frame)
    # Variables look different to each replica than to the one before it.
    _separate_versions(common)
    for state, value in replica.enter:
        state.set_local(value)
    if replica.locals is not None:
        replica.locals.apply()
    _NAMES.context = replica.names
    try:
        given = replica.greenlet.switch(*answer)
    except FloatingPointError as error:
        # JAX, with `jax_debug_nans`, knows the operation, but not the replica.
        error.add_note(f"It was computed on replica {replica.port.index}.")
        raise
    finally:
        _restore_common(replica, common)
        _separate_versions(common)
        replica.frame = ambient.swap(outer)
    # What the greenlet gave is a request if it waits, and its result if it has ended.
    if replica.greenlet.dead:
        if replica.port.has_tapes:
            # Values of its tapes, all of which have ended, are plain arrays again.
            jax_tapes.go_back(replica.port.level)
            given = nest.map_structure(jax_tapes.lower, given)
        replica.result = given
    else:
        replica.request = given


def _separate_versions(common: _RunContext) -> None:
    """Keep JAX from reusing the traces of one replica for another (decision 0008)."""
    if common.state.is_compiled:
        common.state.versions.advance()
    elif _eager.has_read:
        _eager.note_change()


def _restore_common(replica: _Replica, common: _RunContext) -> None:
    """Save the surroundings of a replica that pauses, and restore the common ones."""
    replica.names, _NAMES.context = _NAMES.context, common.names
    now = _read_settings()
    if not all(map(operator.is_, now, replica.settings)):
        # It is paused inside a block that changes settings, or has left one.
        replica.settings = now
        replica.enter = _find_changes(common.settings, now)
        replica.leave = _find_changes(now, common.settings)
    for state, value in replica.leave:
        state.set_local(value)
    # A short question: most programs use neither Keras nor Flax.
    if sys.modules.keys().isdisjoint(library_hooks.known):
        return
    replica.locals = library_hooks.ThreadLocals.capture()
    if common.locals is None:
        # A replica has just loaded the library, so the common objects are still empty.
        common.locals = replica.locals.make_blank()
    common.locals.apply()


def _stop_all(waiting: Sequence[_Replica], common: _RunContext) -> None:
    """End all replicas that will not be resumed, even if ending one is interrupted."""
    # One that were left would be ended when its memory is freed, in any frame.
    with contextlib.ExitStack() as ends:
        for replica in reversed(waiting):
            ends.callback(_stop, replica, common)


def _stop(replica: _Replica, common: _RunContext) -> None:
    """End a replica that will not be resumed, so that its `finally` blocks run."""
    outer = ambient.swap(replica.frame)
    if replica.locals is not None:
        replica.locals.apply()
    try:
        # Again if a `finally` block waits for the other replicas, which do not come.
        while not replica.greenlet.dead:
            with contextlib.suppress(errors.ReplicaStop):
                replica.greenlet.throw(errors.ReplicaStop)
    except Exception:
        # The caller gets the error for which all replicas end.
        _log.warning(
            "Replica %d raised an error while it was ended because another replica "
            "had failed or had returned early.",
            replica.port.index,
            exc_info=True,
        )
    finally:
        # A block that ends here, such as `with jax.default_device(...)`, has gone back
        # to what the replica had before it.
        _restore_common(replica, common)
        ambient.swap(outer)
