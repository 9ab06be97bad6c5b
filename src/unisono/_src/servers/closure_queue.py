"""The queue of closures that wait for a worker; it keeps the first error of one."""

from __future__ import annotations

import collections
import threading
from typing import Generic, Protocol, TypeVar, final

from unisono._src.foundation import errors

# TensorFlow's limit, after which `schedule` waits.
LIMIT = 256 * 1024
CANCELLED = "The corresponding function is cancelled. Please reschedule the function."


class Cancellable(Protocol):
    """Something that waits for a worker, and may never run."""

    def cancel(self) -> None:
        """Notes that it does not run."""


_C = TypeVar("_C", bound=Cancellable)


@final
class ClosureQueue(Generic[_C]):
    """Closures that wait for a worker, first come first served.

    The first error of a closure is kept. The next `put`, `wait` or `is_done` raises it,
    after nothing runs any more and all that waits is cancelled. Then the queue can be
    used again.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._waiting: collections.deque[_C] = collections.deque()
        self._running = 0
        self._error: BaseException | None = None
        self._is_cancelling = False
        self._is_closed = False
        # Guards all of the above, and is notified when any of it changes.
        self._changed = threading.Condition()
        # Held by `wait`: what is scheduled meanwhile in other threads comes later.
        # Always taken before `_changed`. `get` and `finish` never take it, so that
        # workers go on while a caller waits.
        self._cut_off = threading.Lock()

    def put(self, closure: _C) -> None:
        """Appends a closure; waits while the queue is full.

        Raises:
            BaseException: the error of an earlier closure. The new one is cancelled.
            RuntimeError: the queue was closed, so no worker would run the closure.
        """
        with self._cut_off, self._changed:
            self._changed.wait_for(
                lambda: (
                    len(self._waiting) < self._limit or self._error or self._is_closed
                )
            )
            if self._is_closed:
                closure.cancel()
                raise RuntimeError(
                    "The strategy was shut down: its workers have ended, and nothing "
                    "more can be scheduled. Make a new strategy."
                )
            # Appended even after an error, which then cancels it with the others.
            self._waiting.append(closure)
            self._changed.notify_all()
            self._raise_error()

    def get(self) -> _C | None:
        """Returns the next closure to run; None when the queue was closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (self._waiting and not self._is_cancelling)
            )
            if self._is_closed:
                return None
            self._running += 1
            found = self._waiting.popleft()
            self._changed.notify_all()
            return found

    def get_more(self, most: int, share: int) -> list[_C]:
        """Returns further closures, which run together with one that `get` returned.

        Args:
            most: how many at most.
            share: how many workers there are. Enough closures stay for the others.
        """
        with self._changed:
            if self._is_closed or self._is_cancelling or self._error is not None:
                return []
            # At most half of a worker's share, so that the others do not run dry while
            # this one works on its closures.
            count = min(most, len(self._waiting) // (2 * share))
            self._running += count
            return [self._waiting.popleft() for _ in range(count)]

    def has_waiting(self) -> bool:
        """Whether a closure waits for a worker."""
        with self._changed:
            return bool(self._waiting)

    def finish(self, error: BaseException | None = None) -> None:
        """Notes that a closure has ended, with an error or without."""
        with self._changed:
            self._running -= 1
            if self._error is None and not self._is_cancelling:
                self._error = error
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Notes the error of a closure that could not even be made."""
        with self._changed:
            self._raise_error()
            self._error = error
            self._changed.notify_all()

    def put_back(self, *given: _C) -> None:
        """Takes back closures whose worker was lost; they run next."""
        with self._changed:
            self._running -= len(given)
            if self._is_cancelling or self._is_closed:
                for closure in given:
                    closure.cancel()
            else:
                # In their old order, before all others.
                self._waiting.extendleft(reversed(given))
            self._changed.notify_all()

    def wait(self) -> None:
        """Waits until all closures have ended.

        Raises:
            BaseException: the first error of one of them.
        """
        with self._cut_off, self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._is_idle())
            self._raise_error()

    def is_done(self) -> bool:
        """Whether all closures have ended; raises as `wait` does."""
        with self._changed:
            self._raise_error()
            return self._is_idle()

    def _is_idle(self) -> bool:
        return self._is_closed or not (self._waiting or self._running)

    def _raise_error(self) -> None:
        """Raises the error, once, after cancelling everything else."""
        if self._error is None:
            return
        # While this thread waits the condition's lock is free: `get` must hand out
        # nothing, and errors of those that still run are not kept.
        self._is_cancelling = True
        try:
            self._changed.wait_for(lambda: not self._running or self._is_closed)
            while self._waiting:
                self._waiting.popleft().cancel()
            error, self._error = self._error, None
        finally:
            self._is_cancelling = False
            self._changed.notify_all()
        raise error

    def close(self) -> None:
        """Cancels all closures that wait, and ends the workers' waits for one."""
        with self._changed:
            self._is_closed = True
            while self._waiting:
                self._waiting.popleft().cancel()
            self._changed.notify_all()


def cancelled_error() -> errors.CancelledError:
    """Returns the error of a closure that was cancelled."""
    return errors.CancelledError(CANCELLED)
