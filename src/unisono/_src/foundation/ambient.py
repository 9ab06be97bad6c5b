"""The context frame of each thread; the only module with thread-local state.

A frame describes the running code: which strategy is current, in which of the three
modes, for which replica, and where variable values are kept. Frames are immutable, so
pausing a replica and resuming it later takes one assignment of the current frame.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, final

# The modes of TensorFlow. CROSS sees all replicas, as in a scope or a merge; REPLICA is
# one of them, also the only one outside every strategy; UPDATE is CROSS that writes one
# copy of a variable.
CROSS = "cross-replica"
REPLICA = "replica"
UPDATE = "update"


@final
class Frame(NamedTuple):
    """The context of the running code.

    Attributes:
        strategy: the current strategy, or None for the default one.
        mode: CROSS, REPLICA or UPDATE.
        replica: the `ReplicaContext` of a REPLICA frame, else None.
        port: the `ports.Port` through which this replica meets the others.
        copy: the index of the copy being updated in an UPDATE frame, or of the replica
            whose copies are read in a REPLICA frame; None elsewhere.
        placement: the `storage.Placement` of new variables; None outside every scope.
        state: the frame of variable values while compiling; None when eager.
        colocate: the variable given to `colocate_vars_with`, or None.
        creators: the functions given to `variable_creator_scope`, outermost first.
        outer_creators: how many of `creators` were given before the strategy's scope.
        host: the `function` that runs on the host and compiles its runs, or None.
        updating: in a program, the mirrored cell whose copies are updated as one.
        tape: the `jax_tapes.Recording` of the innermost gradient tape, or None.
        names: the prefix that `name_scope` gives to names of variables.
        worker: the number of the worker whose dataset function runs; -1 while a
            function is traced that any worker may run; None elsewhere.
        is_lookup: whether an embedding lookup runs, which must not read whole tables.
        reads: the values that `cache_variable_reads` keeps, by cell; None outside it.
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
    tape: Any = None
    names: str = ""
    worker: int | None = None
    is_lookup: bool = False
    reads: dict[Any, Any] | None = None


# One object: `is_root` compares by identity, at every call of a compiled function.
ROOT = Frame()


class PerThread(threading.local):
    """A base class for attributes that each thread sets for itself.

    A thread that has set none sees the attributes of the class. Replicas that take
    turns share a thread, and so they share these attributes.
    """


@final
class _Local(PerThread):
    frame: Frame = ROOT
    # The frame outside every block; `experimental_set_strategy` sets another one.
    root: Frame = ROOT


_local = _Local()


def current() -> Frame:
    """Return the frame of the running code."""
    return _local.frame


def is_root() -> bool:
    """Return whether the running code is outside every strategy and program."""
    return _local.frame is ROOT


def swap(frame: Frame) -> Frame:
    """Make `frame` current and return the one it replaces."""
    old = _local.frame
    _local.frame = frame
    return old


def root() -> Frame:
    """Return the frame that is current in this thread outside every block."""
    return _local.root


def set_root(frame: Frame) -> None:
    """Set the frame that is current in this thread outside every block.

    Call it outside every block only: a block that is left restores its outer frame.
    """
    _local.root = frame
    _local.frame = frame


@contextlib.contextmanager
def push(**changes: Any) -> Iterator[Frame]:
    """Run a block under the current frame with some fields changed."""
    outer = _local.frame
    # A named tuple because eager code makes one at every step: replacing fields of a
    # frozen dataclass takes several times as long.
    _local.frame = frame = outer._replace(**changes)
    try:
        yield frame
    finally:
        _local.frame = outer
