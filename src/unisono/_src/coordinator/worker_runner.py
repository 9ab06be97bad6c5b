"""Gives closures to one worker, and brings it back when it is lost."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, final

from unisono._src.coordinator import closures, waiting
from unisono._src.coordinator.carrier import SERVER, WORKER, Carrier
from unisono._src.coordinator.closure_queue import ClosureQueue
from unisono._src.coordinator.messages import OtherShapes
from unisono._src.coordinator.resources import ClosureInputError, Resources
from unisono._src.coordinator.server_group import Servers
from unisono._src.coordinator.server_recovery import ServerRecovery
from unisono._src.foundation import errors

_log = logging.getLogger("unisono")


@final
class WorkerRunner:
    """Runs closures on one worker, one at a time.

    Args:
        index: the number of the worker.
        carrier: reaches it.
        servers: the parameter servers.
        queue: has the closures.
        resources: has the datasets that workers make.
        recovery: brings lost servers back.
    """

    def __init__(
        self,
        index: int,
        carrier: Carrier,
        servers: Servers,
        queue: ClosureQueue,
        resources: Resources,
        recovery: ServerRecovery,
    ) -> None:
        self.index = index
        self._carrier = carrier
        self._servers = servers
        self._queue = queue
        self._resources = resources
        self._recovery = recovery
        # Programs that the worker has, and how often it and servers were replaced.
        self._known: set[str] = set()
        self._rounds = (0, 0)
        self.is_stopped = threading.Event()

    def serve(self) -> None:
        """Runs closures until the queue is closed; this is a thread of its own."""
        while (closure := self._queue.get()) is not None:
            self.run(closure)
            # Not kept while the thread waits: it has arrays.
            del closure

    def run(self, closure: closures.Closure) -> None:
        """Runs a closure, and says how it ended."""
        rounds = 0
        try:
            with self._recovery.run() as rounds:
                self._meet_servers(rounds)
                arrays = self._run(closure)
        except errors.UnavailableError as error:
            if error.task_type == SERVER:
                self._miss_server(closure, error, rounds)
                return
            _log.warning(
                "The worker %d is gone; '%s' runs again on another one.",
                self.index,
                closure.name,
            )
            self._queue.put_back(closure)
            self._recover()
        except Exception as error:
            closure.fail(error)
            self._queue.finish(error)
        else:
            closure.succeed(arrays)
            self._confirm(closure)
            self._queue.finish()

    def _meet_servers(self, rounds: int) -> None:
        """Connects the worker with servers; one of them may have been replaced."""
        now = (rounds, self._resources.rounds[self.index])
        if now != self._rounds:
            every = range(self._servers.count)
            self._call("connect", [self._carrier.server(i) for i in every])
            # A new worker needs all programs. New servers need those of updates, which
            # are sent with those of closures.
            self._known.clear()
            self._rounds = now

    def _miss_server(
        self, closure: closures.Closure, error: errors.UnavailableError, rounds: int
    ) -> None:
        """Ends a closure whose server is gone, or brings the server back first."""
        told = self._servers.explain(error)
        if not self._recovery.is_possible:
            closure.fail(told)
            self._queue.finish(told)
            return
        try:
            self._recovery.recover(error.task_index, rounds)
        except Exception as failure:
            failure.add_note(f"It was raised while variables were restored: {told}")
            closure.fail(failure)
            self._queue.finish(failure)
        else:
            self._queue.put_back(closure)

    def _confirm(self, closure: closures.Closure) -> None:
        """Lets servers forget a closure that does not run again."""
        if closure.number is None:
            return
        for server in {e.server for e in closure.shipment.program.effects}:
            # Nobody waits: a server that remembers too long does no harm.
            self._carrier.server(server).call("confirm", [closure.number])

    def _run(self, closure: closures.Closure) -> Any:
        """Returns the arrays of a closure's result."""
        while True:
            program = closure.shipment.program
            self._resources.build(self.index, closure.feeds)
            self._send(closure.shipment)
            local = closures.local_values(closure.shipment)
            given = [*local, *closure.arguments]
            found = self._call("run", program.key, given, closure.feeds, closure.number)
            if not isinstance(found, OtherShapes):
                return found
            closure.shipment = closure.retrace(found.shapes)

    def _send(self, shipment: closures.Shipment) -> None:
        """Gives the worker, and servers, the programs that they do not have yet."""
        program = shipment.program
        if program.key in self._known:
            return
        for server, key, data in shipment.updates:
            self._servers.send_program(server, key, data)
        self._call("add_program", program)
        self._known.add(program.key)

    def _call(self, method: str, *args: Any) -> Any:
        made = self._carrier.worker(self.index).call(method, *args)
        return waiting.wait(made, WORKER, self.index, f"'{method}'")

    def _recover(self) -> None:
        """Waits until the worker is there again; its datasets are made anew."""
        end, pause = time.monotonic() + waiting.PATIENCE, 0.01
        while not self.is_stopped.is_set():
            try:
                self._resources.recover(self.index)
                self._servers.reset(self.index)
                return
            except ClosureInputError:
                # Closures that use the dataset say so.
                return
            except errors.UnavailableError:
                if time.monotonic() > end:
                    _log.error("The worker %d did not come back.", self.index)
                    return
            self.is_stopped.wait(pause)
            pause = min(pause * 1.3, 10.0)
