"""Brings a lost parameter server back from a checkpoint, while workers wait."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.servers.carrier import SERVER
from unisono._src.servers.server_group import ServerGroup

_log = logging.getLogger("unisono")


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
