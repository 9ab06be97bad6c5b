"""The context frame of each thread; the only module with thread-local state.

A frame describes the running code: which strategy is current, in which of the three
modes, for which replica, and where variable values are kept. Frames are immutable, so
pausing a replica and resuming it later takes one assignment of the current frame.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

if TYPE_CHECKING:
    # A frame names what the rooms above put in it, and calls nothing of it.
    import jax

    from unisono._src.execution.contexts import ReplicaContext
    from unisono._src.execution.function import Function
    from unisono._src.machines.topology import Topology
    from unisono._src.state.frames import StateFrame
    from unisono._src.state.storage import Cell, Placement
    from unisono._src.strategies.base import Strategy
    from unisono._src.values.jax_tapes import Recording
    from unisono._src.values.ports import ReplicaPort

# The modes of TensorFlow. CROSS sees all replicas, as in a scope or a merge; REPLICA is
# one of them, also the only one outside every strategy; UPDATE is CROSS that writes one
# copy of a variable.
CROSS = "cross-replica"
REPLICA = "replica"
UPDATE = "update"


class Host(Protocol):
    """A `function` that runs on the host, where only its runs are compiled."""

    def compiled_run(self, fn: Callable[..., Any]) -> Function[..., Any]:
        """Return the compiled form of a replica function."""


@final
class ServerUse(NamedTuple):
    """The part of a context that only parameter servers need.

    Attributes:
        worker: the number of the worker whose dataset function runs; -1 while a
            function is traced that any worker may run; None elsewhere.
        is_lookup: whether an embedding lookup runs, which must not read whole tables.
        reads: the values that `cache_variable_reads` keeps, by cell and by the id of
            the frame that read it; None outside it.
    """

    worker: int | None = None
    is_lookup: bool = False
    reads: dict[tuple[Cell, int], jax.Array] | None = None


@final
class Frame(NamedTuple):
    """The context of the running code.

    Attributes:
        strategy: the current strategy, or None for the default one.
        mode: CROSS, REPLICA or UPDATE.
        replica: the `ReplicaContext` of a REPLICA frame, else None.
        port: the port through which this replica meets the others.
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
        servers: what only parameter servers need.
    """

    strategy: Strategy | None = None
    mode: str = REPLICA
    replica: ReplicaContext | None = None
    port: ReplicaPort | None = None
    copy: int | None = None
    placement: Placement | None = None
    state: StateFrame | None = None
    colocate: object = None
    creators: tuple[Callable[..., Any], ...] = ()
    outer_creators: int = 0
    host: Host | None = None
    updating: Cell | None = None
    tape: Recording | None = None
    names: str = ""
    servers: ServerUse = ServerUse()


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
    # No field of the frame: it changes at every element of a dataset.
    is_in_dataset: bool = False


_local = _Local()


def current() -> Frame:
    """Return the frame of the running code."""
    return _local.frame


def is_root() -> bool:
    """Return whether the running code is outside strategies, programs and datasets."""
    return _local.frame is ROOT and not _local.is_in_dataset


def is_in_dataset() -> bool:
    """Return whether the running code is a function given to a dataset's method.

    What such a function computes stays on the host, unless it traces a program.
    """
    return _local.is_in_dataset and _local.frame.state is None


def enter_dataset(is_in_dataset: bool) -> bool:
    """Say whether a dataset's function runs from now on; return what was said before.

    The caller restores it. There is no context manager: this runs for every element.
    """
    before = _local.is_in_dataset
    _local.is_in_dataset = is_in_dataset
    return before


def topology() -> Topology:
    """Return the replicas of the scope that the running code is in.

    Raises:
        RuntimeError: the code is outside every scope.
    """
    placement = _local.frame.placement
    if placement is None:
        raise RuntimeError("There are no replicas outside the scope of a strategy.")
    return placement.topology


def replica() -> ReplicaContext:
    """Return the context of the replica that runs.

    Raises:
        RuntimeError: no strategy runs the code as a replica.
    """
    found = _local.frame.replica
    if found is None:
        raise RuntimeError("No replica runs: call this in a function given to `run`.")
    return found


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


def push_servers(
    **changes: Any,
) -> contextlib.AbstractContextManager[Frame]:
    """Run a block under the current frame with other fields of its `servers`."""
    return push(servers=_local.frame.servers._replace(**changes))


@contextlib.contextmanager
def enter(frame: Frame) -> Iterator[None]:
    """Run a block under a frame."""
    outer = swap(frame)
    try:
        yield
    finally:
        swap(outer)


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
