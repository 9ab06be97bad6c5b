"""The stack of context frames, and whatever else each thread has of its own.

This is the only module with thread-local state. A frame says whose code runs now: which
strategy is current, in which of the three modes, for which replica, and where variable
values are kept (`state`: None when eager). Frames are immutable and linked to their
parent, so a replica that is paused can be put aside and brought back by exchanging one
pointer.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, final

CROSS = "cross-replica"
REPLICA = "replica"
UPDATE = "update"


@final
class Frame(NamedTuple):
    """Where the running code stands.

    Attributes:
        strategy: the current strategy, or None for the default one.
        mode: CROSS, REPLICA or UPDATE.
        replica: the ReplicaContext of a REPLICA frame, else None.
        port: how this replica meets the others: a `collectives.Port`.
        copy: index of the copy being updated in an UPDATE frame, or of the replica
            whose copies are read in a REPLICA frame; None elsewhere.
        placement: where variables are created, a `state.Placement`; None outside.
        state: the frame of variable values while compiling; None when eager.
        colocate: the variable given to `colocate_vars_with`, or None.
        creators: functions given to `variable_creator_scope`, outermost first.
        updating: in a program, the mirrored cell whose copies are updated as one.
        host: the `function` that runs on the host and compiles its runs, or None.
        outer_creators: how many of them were given before the strategy's scope.
    """

    strategy: Any = None
    mode: str = REPLICA
    replica: Any = None
    port: Any = None
    copy: int | None = None
    placement: Any = None
    state: Any = None
    colocate: Any = None
    creators: tuple[Any, ...] = ()
    outer_creators: int = 0
    host: Any = None
    updating: Any = None


ROOT = Frame()


class PerThread(threading.local):
    """Attributes that each thread sets for itself; a new thread has the class's own.

    Replicas that take turns share a thread, and so they share these attributes.
    """


@final
class _Local(PerThread):
    frame: Frame = ROOT
    root: Frame = ROOT


_local = _Local()


def current() -> Frame:
    """The frame of the running code."""
    return _local.frame


def is_root() -> bool:
    """Whether the running code is outside every strategy and program."""
    return _local.frame is ROOT


def swap(frame: Frame) -> Frame:
    """Make `frame` current and give back the one it replaces."""
    old = _local.frame
    _local.frame = frame
    return old


def root() -> Frame:
    """The frame at the bottom of this thread's stack."""
    return _local.root


def set_root(frame: Frame) -> None:
    """Replace the bottom of the stack; only when nothing is stacked on it."""
    _local.root = frame
    _local.frame = frame


@contextlib.contextmanager
def pushed(**changes: Any) -> Iterator[Frame]:
    """Run a block under the current frame with some fields changed."""
    outer = _local.frame
    # A named tuple because eager code makes one at every step: replacing fields of a
    # frozen dataclass takes several times as long.
    _local.frame = frame = outer._replace(**changes)
    try:
        yield frame
    finally:
        _local.frame = outer
