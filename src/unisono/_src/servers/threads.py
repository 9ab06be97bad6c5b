"""The in-process carrier: servers and workers are threads of this process."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar, final

from unisono._src.cluster.cluster_tasks import ClusterSpec
from unisono._src.foundation import errors
from unisono._src.servers.carrier import SERVER, WORKER, Carrier, Handle
from unisono._src.servers.server import ParameterServer
from unisono._src.servers.worker import Worker

_T = TypeVar("_T")


class _TaskLost(errors.Signal):
    """Ends a call that a lost worker was making."""


@final
class _Task:
    """One server or worker: an object, and the thread that runs its methods.

    Args:
        kind: SERVER or WORKER.
        index: which one.
        is_inline: whether callers run the methods themselves.
    """

    def __init__(self, kind: str, index: int, is_inline: bool) -> None:
        self.kind, self.index = kind, index
        self.target: ParameterServer | Worker | None = None
        self.is_lost = False
        self._lock = threading.Lock()
        self._open: set[Future[Any]] = set()
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if not is_inline:
            self._thread = threading.Thread(
                target=_serve,
                args=(self._calls,),
                name=f"unisono {kind} {index}",
                daemon=True,
            )
            self._thread.start()

    def call(self, method: str, args: tuple[object, ...]) -> Future[Any]:
        """Calls a method in the thread of the task."""
        made: Future[Any] = Future()
        with self._lock:
            if self.is_lost:
                made.set_exception(self.lost_error())
                return made
            # Noted under the lock that `lose` takes, so that every call fails or is
            # refused.
            self._open.add(made)
        made.add_done_callback(self._open.discard)
        todo = (made, getattr(self.target, method), args)
        if self._thread is None:
            _carry_out(*todo)
        else:
            self._calls.put(todo)
        return made

    def lose(self) -> None:
        """Ends the task: open calls fail, and so do all later ones."""
        with self._lock:
            self.is_lost = True
            waiting = list(self._open)
        # Outside the lock: the end of a call may run the caller's code, and that may
        # call this task again.
        for call in waiting:
            _finish(call.set_exception, self.lost_error())
        self._calls.put(None)

    def stop(self) -> None:
        """Ends the task, and waits until its thread has ended."""
        self.lose()
        # A thread cannot wait for itself. The strategy, whose end calls this, may be
        # collected in any thread.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def lost_error(self) -> errors.UnavailableError:
        """Returns the error of a call that the task does not answer."""
        what = "parameter server" if self.kind == SERVER else "worker"
        return errors.UnavailableError(
            f"The {what} {self.index} is gone.", self.kind, self.index
        )


def _serve(calls: queue.SimpleQueue[Any]) -> None:
    """Carries out calls in order until it gets None; runs in a task's thread."""
    while (call := calls.get()) is not None:
        _carry_out(*call)
        # The loop must not keep the last call's arrays while it waits.
        del call


def _carry_out(
    made: Future[Any], method: Callable[..., object], args: tuple[object, ...]
) -> None:
    # Lost before its turn came.
    if made.done():
        return
    try:
        result = method(*args)
    except _TaskLost:
        # `lose` has ended the call of the lost worker already.
        return
    except BaseException as error:
        # Whatever it is, the caller raises it; this thread goes on to serve.
        _finish(made.set_exception, error)
    else:
        _finish(made.set_result, result)


def _finish(set_outcome: Callable[[_T], None], outcome: _T) -> None:
    """Ends a call, unless the loss of its task has ended it before."""
    with contextlib.suppress(InvalidStateError):
        set_outcome(outcome)


@final
class _ThreadHandle(Handle):
    """Reaches a task of this process.

    Args:
        carrier: the carrier that runs the task.
        task: the kind and number of the server or worker to call.
        caller: the worker that has this handle, if one has. When it is lost, nothing
            that it still does must reach a server.
    """

    def __init__(
        self, carrier: ThreadCarrier, task: tuple[str, int], caller: _Task | None
    ) -> None:
        self._carrier, self._task, self._caller = carrier, task, caller

    def call(self, method: str, *args: object) -> Future[Any]:
        """Calls a method of the object; see `Handle`."""
        watch = self._carrier.watch
        if watch is not None:
            source = None if self._caller is None else self._caller.index
            watch(source, *self._task, method)
        if self._caller is not None and self._caller.is_lost:
            raise _TaskLost
        task = self._carrier.tasks[self._task]
        return task.call(method, tuple(_hand_over(x, task) for x in args))

    def make_for(self, caller: _Task) -> _ThreadHandle:
        """Returns a handle for a worker, which fails when that worker is lost."""
        return _ThreadHandle(self._carrier, self._task, caller)


def _hand_over(x: object, task: _Task) -> object:
    """Returns an argument of a call as the called task gets it."""
    if isinstance(x, list) and x and isinstance(x[0], _ThreadHandle):
        return [handle.make_for(task) for handle in x]
    return x


@final
class ThreadCarrier(Carrier):
    """Runs servers and workers as threads of this process.

    Use it to test and debug a program. ``carrier="threads"`` creates one. Create it
    yourself to set `synchronous`, which runs the program step by step.

    Args:
        synchronous: whether a closure runs when it is scheduled, in the thread that
            schedules it. Everything then happens in the same order in every run.
        watch: for tests: a function that is called before each call. Its arguments are
            the index of the calling worker (None for the coordinator), the kind and
            index of the task that is called, and the name of the method. It may call
            `lose`.

    >>> import unisono
    >>> cluster = {"worker": ["a:1", "b:1"], "ps": ["c:1"]}
    >>> resolver = unisono.distribute.cluster_resolver.SimpleClusterResolver(
    ...     unisono.train.ClusterSpec(cluster)
    ... )
    >>> strategy = unisono.distribute.ParameterServerStrategy(
    ...     resolver,
    ...     carrier=unisono.distribute.coordinator.ThreadCarrier(synchronous=True),
    ... )
    >>> with strategy.scope():
    ...     total = unisono.Variable(0)
    >>> add = unisono.function(lambda: total.assign_add(1))
    >>> coordinator = unisono.distribute.coordinator.ClusterCoordinator(strategy)
    >>> coordinator.schedule(add).fetch()
    np.int32(1)
    >>> strategy.shutdown()
    """

    def __init__(
        self,
        synchronous: bool = False,
        watch: Callable[[int | None, str, int, str], None] | None = None,
    ) -> None:
        self.is_synchronous = synchronous
        self.watch = watch
        # The tasks that answer now, and those that were lost before.
        self.tasks: dict[tuple[str, int], _Task] = {}
        self._lost: list[_Task] = []
        self._servers = 0
        self._is_stopped = False
        # A task that is replaced while all are stopped must not be forgotten.
        self._lock = threading.Lock()

    def start(self, cluster: ClusterSpec) -> None:
        """Starts all servers and workers; see `Carrier`."""
        self._servers = cluster.num_tasks(SERVER)
        for kind in (SERVER, WORKER):
            for index in range(cluster.num_tasks(kind)):
                self.replace(kind, index)

    def server(self, index: int) -> Handle:
        """Returns a handle of a server; see `Carrier`."""
        return _ThreadHandle(self, (SERVER, index), None)

    def worker(self, index: int) -> Handle:
        """Returns a handle of a worker; see `Carrier`."""
        return _ThreadHandle(self, (WORKER, index), None)

    def address(self, kind: str, index: int) -> str:
        """Returns where a server or worker runs; see `Carrier`."""
        return "a thread of this process"

    def replace(self, kind: str, index: int) -> None:
        """Starts a new, empty task in place of a lost one; see `Carrier`."""
        with self._lock:
            if self._is_stopped:
                raise errors.UnavailableError(
                    "The strategy was shut down.", kind, index
                )
            task = _Task(kind, index, self.is_synchronous)
            if kind == SERVER:
                task.target = ParameterServer(index)
            else:
                every = [(SERVER, i) for i in range(self._servers)]
                handles = [_ThreadHandle(self, s, task) for s in every]
                task.target = Worker(index, handles)
            if (kind, index) in self.tasks:
                # `stop` waits for the thread of a lost task, too.
                self._lost.append(self.tasks[kind, index])
            self.tasks[kind, index] = task

    def lose(self, kind: str, index: int) -> None:
        """Ends a server or worker at once; see `Carrier`."""
        self.tasks[kind, index].lose()

    def stop(self) -> None:
        """Ends all servers and workers; see `Carrier`."""
        with self._lock:
            self._is_stopped = True
        for task in (*self.tasks.values(), *self._lost):
            task.stop()
