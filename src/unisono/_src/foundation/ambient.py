"""The one stack of context frames; the only thread-local in the package.

A frame says whose code runs now: which strategy is current, in which of the three
modes, for which replica, and where variable values are kept (`state`: None when
eager). Frames are immutable and linked to their parent, so a replica that is paused
can be put aside and brought back by exchanging one pointer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any, final

CROSS = "cross-replica"
REPLICA = "replica"
UPDATE = "update"


@final
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Frame:
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
    depth: int = 0


ROOT = Frame()


@final
class _Local(threading.local):
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
    frame = dataclasses.replace(outer, depth=outer.depth + 1, **changes)
    _local.frame = frame
    try:
        yield frame
    finally:
        _local.frame = outer
