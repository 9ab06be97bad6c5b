"""Calls of a function in threads that take one element after the other."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, final

from unisono._src.foundation import ambient, cpu_threads

# Makes the result for an element. The second argument copies the arrays of the result;
# it is None if NumPy shall copy them.
Copy = Callable[[Any], Any]
Compute = Callable[[Any, Copy | None], object]
# A limit that no program reaches: every reader limits its own threads.
_MOST_THREADS = 1000
# Threads stay for the next epoch, and for other readers: to start them anew costs an
# epoch of 200 photos 4 % of its time.
_pools: dict[tuple[int, int], concurrent.futures.ThreadPoolExecutor] = {}


@final
class Outcome:
    """What has become of an element: a result, or an exception kept for its turn.

    Attributes:
        mark: for an exception of the source, the position behind it, which counts when
            it has been raised; None for what the function has returned or raised.
    """

    def __init__(
        self, found: object, exception: BaseException | None = None, mark: object = None
    ) -> None:
        self._found, self._exception, self.mark = found, exception, mark

    def result(self) -> object:
        """Returns the result, or raises the exception."""
        exception, self._exception = self._exception, None
        if exception is None:
            return self._found
        try:
            raise exception
        finally:
            # The exception's traceback holds this frame, and that of the thread which
            # has the outcome. If they held the exception, too, all of them would keep
            # the threads alive.
            del exception, self


@final
class Call:
    """The call of the function for one element.

    Args:
        element: the element.
        copy: copies the arrays of the result; NumPy does if it is None.
    """

    def __init__(self, element: object, copy: Copy | None) -> None:
        self._element, self._copy = element, copy
        self._outcome: Outcome | None = None
        # Released when there is an outcome. An event would cost three times as much.
        self._end = threading.Lock()
        self._end.acquire()

    def run(self, compute: Compute) -> None:
        """Calls the function."""
        try:
            self._finish(Outcome(compute(self._element, self._copy)))
        except BaseException as e:
            self._finish(Outcome(None, e))

    def cancel(self) -> None:
        """Ends a call that no thread has begun."""
        self._finish(Outcome(None, concurrent.futures.CancelledError()))

    def _finish(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._end.release()

    def outcome(self) -> Outcome:
        """Returns what has become of the element, and waits for it."""
        if self._outcome is None:
            with self._end:
                pass
            assert self._outcome is not None
        return self._outcome


def _find_pool() -> concurrent.futures.ThreadPoolExecutor:
    """Returns the threads that calls of the calling thread run in."""
    # A process that was forked has no threads. And a thread inherits the priority of
    # the one that starts it, which other readers may not have.
    key = os.getpid(), cpu_threads.find_priority()
    found = _pools.get(key)
    if found is None:
        made = concurrent.futures.ThreadPoolExecutor(_MOST_THREADS, "unisono-map")
        found = _pools.setdefault(key, made)
    return found


@final
class ThreadCalls:
    """Calls that threads take one by one, so that no thread waits for another.

    A thread goes on while there are calls: to hand it each one by itself costs as much
    as some arithmetic with an image.

    Args:
        compute: makes the result for an element.
        most: how many threads work at the same time.
    """

    def __init__(self, compute: Compute, most: int) -> None:
        self._compute, self._most = compute, most
        self._lock = threading.Lock()
        self._open: collections.deque[Call] = collections.deque()
        # A mark for each thread that works, or will.
        self._running: set[object] = set()

    def add(self, call: Call) -> None:
        """Adds a call, which a thread begins when all before it have begun."""
        self._open.append(call)
        self.begin()

    def begin(self) -> None:
        """Starts a thread if there is a call for it, and one more may run.

        Before a call is waited for, too: one that could not start a thread is still
        there.
        """
        mark = object()
        with self._lock:
            if not self._open or len(self._running) == self._most:
                return
            self._running.add(mark)
        try:
            _find_pool().submit(self._run, mark)
        except BaseException:
            with self._lock:
                self._running.discard(mark)
            raise

    def _run(self, mark: object) -> None:
        """Makes calls until there are none."""
        # A pool that could not start a thread keeps the work for the next one.
        if mark not in self._running:
            return
        # The everyday names compute on the host. Said once, not for every element.
        before = ambient.enter_dataset(True)
        try:
            while (call := self._take(mark)) is not None:
                call.run(self._compute)
                # Not until the next call: it has the element and its result.
                del call
        finally:
            ambient.enter_dataset(before)

    def _take(self, mark: object) -> Call | None:
        """Returns the next call; None if there is none, and the thread is to end."""
        with self._lock:
            try:
                return self._open.popleft()
            except IndexError:
                self._running.discard(mark)
                return None

    def cancel(self) -> None:
        """Ends the calls that no thread has begun."""
        # Without the lock, which the thread that collects garbage may have.
        with contextlib.suppress(IndexError):
            while True:
                self._open.popleft().cancel()
