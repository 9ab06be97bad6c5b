"""Gives closures to one worker, and brings it back when it is lost."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, final

from unisono._src.coordinator import closures, waiting
from unisono._src.coordinator.carrier import SERVER, WORKER, Carrier
from unisono._src.coordinator.closure_queue import ClosureQueue
from unisono._src.coordinator.messages import Job, OtherShapes, Outcome
from unisono._src.coordinator.resources import ClosureInputError, Resources
from unisono._src.coordinator.server_group import Servers
from unisono._src.foundation import errors

# Closures travel together as long as they take no longer than this.
_SECONDS = 0.02
_MOST = 32

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
        # How many closures travel together.
        self._most = 1

    def serve(self) -> None:
        """Runs closures until the queue is closed; this is a thread of its own."""
        while (closure := self._queue.get()) is not None:
            more = self._queue.get_more(self._most - 1, self._resources.workers)
            start = time.monotonic()
            self._run_all([closure, *more])
            each = (time.monotonic() - start) / (1 + len(more))
            if self._carrier.is_remote:
                self._most = max(1, min(_MOST, int(_SECONDS / each)))
            # Not kept while the thread waits: they have arrays.
            del closure, more

    def _run_all(self, batch: list[closures.Closure]) -> None:
        """Runs closures, and says how each has ended."""
        if len(batch) == 1:
            self.run(batch[0])
            return
        try:
            jobs = [self._prepare(closure) for closure in batch]
            outcomes = self._call("run_many", jobs)
        except errors.UnavailableError as error:
            self._lose(batch, error)
            return
        except Exception:
            # One of them cannot be made ready; none has run.
            self._queue.put_back(*batch[1:])
            self.run(batch[0])
            return
        for closure, outcome in zip(batch, map(Outcome._make, outcomes), strict=False):
            self._finish(closure, *outcome)
        rest = batch[len(outcomes) :]
        if rest:
            # The first of them says itself why it did not run.
            self._queue.put_back(*rest[1:])
            self.run(rest[0])

    def run(self, closure: closures.Closure) -> None:
        """Runs a closure, and says how it ended."""
        try:
            arrays = self._run(closure)
        except errors.UnavailableError as error:
            self._lose([closure], error)
        except Exception as error:
            self._finish(closure, [], error)
        else:
            self._finish(closure, arrays)

    def _finish(
        self, closure: closures.Closure, arrays: Any, error: Exception | None = None
    ) -> None:
        """Says how a closure has ended."""
        if error is None:
            closure.succeed(arrays)
        else:
            closure.fail(error)
        self._queue.finish(error)

    def _lose(
        self, batch: list[closures.Closure], error: errors.UnavailableError
    ) -> None:
        """Does what is to be done when a server or this worker is gone."""
        if error.task_type == SERVER:
            told = self._servers.explain(error)
            for closure in batch:
                self._finish(closure, [], told)
            return
        _log.warning(
            "The worker %d is gone; '%s' runs again on another one.",
            self.index,
            batch[0].name,
        )
        self._queue.put_back(*batch)
        self._recover()

    def _run(self, closure: closures.Closure) -> Any:
        """Returns the arrays of a closure's result."""
        while True:
            found = self._call("run", *self._prepare(closure))
            if not isinstance(found, OtherShapes):
                return found
            closure.shipment = closure.retrace(found.shapes)

    def _prepare(self, closure: closures.Closure) -> Job:
        """Gives the worker what a closure needs; returns the closure as it travels."""
        program = closure.shipment.program
        self._resources.build(self.index, program.feeds)
        self._send(closure.shipment)
        local = closures.local_values(closure.shipment)
        return Job(program.key, [*local, *closure.arguments], closure.number)

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
