"""The outbox of a worker that runs several closures in one go.

The changes that closures make wait here until the worker asks their server for
something, or has run the last closure. They then travel in one message, in order, so
that a closure sees what earlier ones have done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, final

from unisono._src.servers.carrier import Handle
from unisono._src.servers.messages import Operation, Request

# Larger changes are sent at once, so that servers work while the worker computes.
_MAX_BYTES = 1 << 22


@final
class Outbox:
    """Collects the changes that closures make, by server.

    Args:
        servers: handles of all servers.
    """

    def __init__(self, servers: Sequence[Handle]) -> None:
        self._servers = servers
        # By server: the place of each closure among those that run, and its change.
        self._waiting: dict[int, list[tuple[int, Any]]] = {}
        self._sent: list[tuple[list[int], Future[Any]]] = []

    def push(
        self, place: int, server: int, operations: list[Operation], closure: int | None
    ) -> None:
        """Adds the changes that a closure makes on one server.

        Args:
            place: the place of the closure among those that run.
            server: the server.
            operations: the changes.
            closure: the number of the closure, see `ParameterServer.push`.
        """
        self._waiting.setdefault(server, []).append((place, (operations, closure)))
        size = sum(x.nbytes for o in operations for x in o.operands)
        if size > _MAX_BYTES:
            self._send(server, [])

    def pull(self, wanted: Mapping[int, Sequence[Request]]) -> dict[int, Any]:
        """Returns the requested values, after sending the changes that wait."""
        calls = {s: self._send(s, asked) for s, asked in wanted.items()}
        return {s: call.result()[1] for s, call in calls.items()}

    def _send(self, server: int, asked: Sequence[Request]) -> Future[Any]:
        waiting = self._waiting.pop(server, [])
        pushes = [push for _, push in waiting]
        made = self._servers[server].call("exchange", pushes, asked)
        if waiting:
            self._sent.append(([place for place, _ in waiting], made))
        return made

    def flush(self) -> dict[int, Exception]:
        """Sends all changes that wait, and returns when they are made.

        Returns:
            The errors of changes, by the place of the closure.
        """
        for server in list(self._waiting):
            self._send(server, [])
        failed: dict[int, Exception] = {}
        for places, call in self._sent:
            for place, error in zip(places, call.result()[0], strict=True):
                if error is not None:
                    # A closure may have changed several servers; its first error
                    # counts.
                    failed.setdefault(place, error)
        self._sent.clear()
        return failed
