"""Gives closures to one worker; brings it, or a lost server, back meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.servers import carrier as carrier_lib, closures
from unisono._src.servers.carrier import SERVER, WORKER, Carrier
from unisono._src.servers.closure_queue import ClosureQueue
from unisono._src.servers.messages import FailedChecks, Job, OtherShapes, Outcome
from unisono._src.servers.resources import ClosureInputError, Resources
from unisono._src.servers.server_group import ServerGroup


@final
class ServerRecovery:
    """Lets closures run, or a lost server come back, but never both at once.

    Args:
        servers: the parameter servers.
        restore: restores all variables, as the program would after a start; None if a
            lost server is an error.

    Attributes:
        rounds: how often servers have come back.
    """

    def __init__(self, servers: ServerGroup, restore: Callable[[], Any] | None) -> None:
        self._servers = servers
        self._restore = restore
        self._changed = threading.Condition()
        self._running = 0
        self._is_busy = False
        self.rounds = 0

    @property
    def is_possible(self) -> bool:
        """Whether lost servers come back."""
        return self._restore is not None

    @contextlib.contextmanager
    def run(self) -> Iterator[int]:
        """Lets a closure run in the block, and gives the number of rounds before it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy)
            self._running += 1
            rounds = self.rounds
        try:
            yield rounds
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def recover(self, server: int, rounds: int) -> None:
        """Replaces a server and restores all variables, when nothing runs any more.

        Args:
            server: the server that is gone.
            rounds: the number of rounds when it was missed. If there was another one
                since, the server may be there already.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy)
            if self.rounds != rounds or self._restore is None:
                return
            # No closure begins from here on, and those that run end first: one that has
            # read old values must not change restored ones.
            self._is_busy = True
            self._changed.wait_for(lambda: not self._running)
        # Without the lock: restoring takes long, and `run` must be able to wait.
        try:
            _log.warning(
                "The parameter server %d is gone; it starts again, and all variables "
                "are restored.",
                server,
            )
            self._replace_and_restore(server, self._restore)
        finally:
            with self._changed:
                # Also after a failure: those that waited for this round do not repeat
                # it; their closures run again, and find out by themselves.
                self.rounds += 1
                self._is_busy = False
                self._changed.notify_all()

    def _replace_and_restore(self, server: int, restore: Callable[[], Any]) -> None:
        """Replaces a server, and others that turn out to be gone, too."""
        for attempt in range(self._servers.count):
            try:
                self._servers.replace(server)
                restore()
            except errors.UnavailableError as error:
                is_other = error.task_type == SERVER and error.task_index != server
                if not is_other or attempt == self._servers.count - 1:
                    raise
                server = error.task_index
                _log.warning("The parameter server %d is gone, too.", server)
            else:
                return


# Closures travel together as long as they take no longer than this.
# With 20 ms those that send 1 MB were a quarter fewer in a second (decision 0027).
_SECONDS = 0.05
# However short they are: a batch that is lost runs again as a whole.
_MOST = 32

_log = logging.getLogger("unisono")


@final
@dataclasses.dataclass(eq=False)
class WorkerRunner:
    """Runs closures on one worker, one at a time.

    Args:
        index: the number of the worker.
        carrier: reaches it.
        servers: the parameter servers.
        queue: has the closures.
        resources: has the datasets that workers make.
        recovery: brings lost servers back.

    Attributes:
        index: the number of the worker.
        ended: how many closures have ended on the worker.
    """

    index: int
    _carrier: Carrier
    _servers: ServerGroup
    _queue: ClosureQueue[closures.Closure]
    _resources: Resources
    _recovery: ServerRecovery
    ended: int = 0
    # Programs that the worker has, and how often it and servers were replaced.
    _known: set[str] = dataclasses.field(default_factory=set)
    _rounds: tuple[int, int] = (0, 0)
    is_stopped: threading.Event = dataclasses.field(default_factory=threading.Event)
    # How many closures travel together.
    _most: int = 1

    def serve(self) -> None:
        """Runs closures until the queue is closed, in a thread of its own."""
        while (closure := self._queue.get()) is not None:
            more = self._queue.get_more(self._most - 1, self._resources.workers)
            start = time.monotonic()
            self._run_all([closure, *more])
            # How long the next ones take is judged by these.
            each = (time.monotonic() - start) / (1 + len(more))
            if self._carrier.is_remote:
                self._most = max(1, min(_MOST, int(_SECONDS / each)))
            # Closures have arrays, so they are not kept while the thread waits.
            del closure, more

    def _run_all(self, batch: list[closures.Closure]) -> None:
        """Runs closures, and gives each its result or error."""
        if len(batch) == 1:
            self.run(batch[0])
            return
        rounds = 0
        try:
            with self._recovery.run() as rounds:
                # Inside the block, where no server can be replaced.
                self._meet_servers(rounds)
                jobs = [self._prepare(closure) for closure in batch]
                outcomes = self._resources.call(self.index, "run_many", jobs)
        except errors.UnavailableError as error:
            self._handle_loss(batch, error, rounds)
            return
        except Exception:
            # One of them cannot be prepared, and none has run. The first runs alone:
            # if it is the one, it gets the error.
            self._queue.put_back(*batch[1:])
            self.run(batch[0])
            return
        for closure, outcome in zip(batch, map(Outcome._make, outcomes), strict=False):
            self._finish(closure, *outcome)
        self._confirm(batch[: len(outcomes)])
        rest = batch[len(outcomes) :]
        if rest:
            # The first of them did not run. Alone it gets its error, or a new trace.
            self._queue.put_back(*rest[1:])
            self.run(rest[0])

    def run(self, closure: closures.Closure) -> None:
        """Runs a closure, and gives it its result or error."""
        rounds = 0
        try:
            with self._recovery.run() as rounds:
                self._meet_servers(rounds)
                arrays = self._run(closure)
        except errors.UnavailableError as error:
            self._handle_loss([closure], error, rounds)
        except Exception as error:
            self._finish(closure, [], error)
        else:
            self._finish(closure, arrays)
            self._confirm([closure])

    def _finish(
        self,
        closure: closures.Closure,
        arrays: Sequence[np.ndarray],
        error: Exception | None = None,
    ) -> None:
        """Gives a closure its result or error, and tells the queue."""
        if error is None:
            try:
                closure.succeed(arrays)
            except Exception as failure:  # What it prints could not be written.
                error = failure
        if error is not None:
            closure.fail(error)
        # Counted before `finish`, which may end the wait of a caller that reads it.
        self.ended += 1
        self._queue.finish(error)

    def _handle_loss(
        self,
        batch: list[closures.Closure],
        error: errors.UnavailableError,
        rounds: int,
    ) -> None:
        """Handles the loss of this worker, of a server, or of the whole cluster."""
        if error.task_type != WORKER:
            self._handle_lost_server(batch, error, rounds)
            return
        _log.warning(
            "The worker %d is gone; '%s' runs again on another one.",
            self.index,
            batch[0].name,
        )
        # Back into the queue first, so that other workers can take them meanwhile.
        self._queue.put_back(*batch)
        self._recover()

    def _meet_servers(self, rounds: int) -> None:
        """Connects the worker with servers; one of them may have been replaced."""
        now = (rounds, self._resources.rounds[self.index])
        if now != self._rounds:
            every = range(self._servers.count)
            handles = [self._carrier.server(i) for i in every]
            self._resources.call(self.index, "connect", handles)
            # A new worker needs all programs. New servers need those of updates, which
            # are sent with those of closures.
            self._known.clear()
            self._rounds = now

    def _handle_lost_server(
        self,
        batch: list[closures.Closure],
        error: errors.UnavailableError,
        rounds: int,
    ) -> None:
        """Ends closures whose server is gone, or brings the server back first."""
        told: Exception = self._servers.explain(error)
        if self._recovery.is_possible and error.task_type == SERVER:
            try:
                self._recovery.recover(error.task_index, rounds)
            except Exception as failure:
                failure.add_note(f"It was raised while variables were restored: {told}")
                told = failure
            else:
                self._queue.put_back(*batch)
                return
        for closure in batch:
            self._finish(closure, [], told)

    def _confirm(self, batch: list[closures.Closure]) -> None:
        """Lets servers forget closures that do not run again."""
        ended: dict[int, list[int]] = {}
        for closure in batch:
            if closure.number is not None:
                for server in {e.server for e in closure.function.program.effects}:
                    ended.setdefault(server, []).append(closure.number)
        for server, numbers in ended.items():
            # Nobody waits: a server that remembers too long does no harm.
            self._carrier.server(server).call("confirm", numbers)

    def _run(self, closure: closures.Closure) -> list[np.ndarray]:
        """Returns the arrays of a closure's result."""
        while True:
            found: list[np.ndarray] | OtherShapes | FailedChecks
            found = self._resources.call(self.index, "run", *self._prepare(closure))
            if isinstance(found, FailedChecks):
                closures.raise_failure(closure.function.told, found.arrays)
            if not isinstance(found, OtherShapes):
                return found
            closure.function = closure.retrace(found.shapes)

    def _prepare(self, closure: closures.Closure) -> Job:
        """Gives the worker all that a closure needs; returns the message to run it."""
        program = closure.function.program
        self._resources.build(self.index, closure.feeds)
        self._send(closure.function)
        local = closures.local_values(closure.function)
        given = [*local, *closure.arguments]
        return Job(program.key, given, closure.feeds, closure.number)

    def _send(self, function: closures.ExportedFunction) -> None:
        """Gives the worker, and servers, the programs that they do not have yet."""
        program = function.program
        if program.key in self._known:
            return
        for server, key, data in function.updates:
            self._servers.send_program(server, key, data)
        self._resources.call(self.index, "add_program", program)
        self._known.add(program.key)

    def _recover(self) -> None:
        """Waits until the worker is replaced and has made its datasets again."""
        end, pause = time.monotonic() + carrier_lib.PATIENCE, 0.01
        while not self.is_stopped.is_set():
            try:
                self._resources.recover(self.index)
                self._servers.reset(self.index)
                return
            except ClosureInputError:
                # Closures that use the dataset raise the error.
                return
            except errors.UnavailableError as error:
                if error.task_type != WORKER:
                    # Closures that need the server, or the cluster, raise it.
                    return
                if time.monotonic() > end:
                    _log.error("The worker %d did not come back.", self.index)
                    return
            self.is_stopped.wait(pause)
            pause = min(pause * 1.3, 10.0)
