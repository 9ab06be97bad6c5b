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
    """

    def __init__(
        self,
        index: int,
        carrier: Carrier,
        servers: Servers,
        queue: ClosureQueue,
        resources: Resources,
    ) -> None:
        self.index = index
        self._carrier = carrier
        self._servers = servers
        self._queue = queue
        self._resources = resources
        # Programs that the worker has.
        self._known: set[str] = set()
        self.is_stopped = threading.Event()

    def serve(self) -> None:
        """Runs closures until the queue is closed; this is a thread of its own."""
        while (closure := self._queue.get()) is not None:
            self.run(closure)
            # Not kept while the thread waits: it has arrays.
            del closure

    def run(self, closure: closures.Closure) -> None:
        """Runs a closure, and says how it ended."""
        try:
            arrays = self._run(closure)
        except errors.UnavailableError as error:
            if error.task_type == SERVER:
                told = self._servers.explain(error)
                closure.fail(told)
                self._queue.finish(told)
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
            found = self._call(
                "run", program.key, given, closure.feeds, closure.number
            )
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
        self._known.clear()
        self._resources.lose(self.index)
        end, pause = time.monotonic() + waiting.PATIENCE, 0.01
        while not self.is_stopped.is_set():
            try:
                self._carrier.replace(WORKER, self.index)
                self._resources.rebuild(self.index)
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
