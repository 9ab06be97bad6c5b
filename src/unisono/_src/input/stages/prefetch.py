"""Reads ahead in a thread."""

from __future__ import annotations

import abc
import atexit
import collections
import contextlib
import logging
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

from unisono._src.foundation import cpu_threads
from unisono._src.foundation.process_bound import ProcessBound
from unisono._src.input.plan import cursors, first_elements, nodes
from unisono._src.input.stages.selecting import Make

_log = logging.getLogger("unisono")
# A reader that has waited this many seconds logs what it waits for.
_PATIENCE = 60.0
# How many elements a reader can put back, because it did not use them.
BACK = 256
# A position is remembered every so many elements, not each time: it may hold a whole
# shuffle buffer.
_EVERY = 64
# How many seconds `get_state` waits while the thread reads; then it takes an older
# position.
_BUSY = 1.0
# How many seconds to wait for a thread that was told to stop; it may be in a user's
# function that does not return.
_GOODBYE = 5.0
# The same when the program ends.
_LAST_GOODBYE = 2.0
# Every so many seconds the thread and the reader look by themselves whether they can
# continue.
_LOOK = 1.0
# The same for a reader that waits until an element has arrived.
_GLANCE = 100e-6


class Destination(abc.ABC):
    """Where a source sends its elements, which arrive later; abstract."""

    @abc.abstractmethod
    def has_arrived(self, element: Any) -> bool:
        """Returns whether an element is there."""

    @abc.abstractmethod
    def room(self, element: Any) -> int:
        """Returns how many elements like this one may be on their way."""


@final
class _End:
    """Stands in the queue after the last element."""


@final
class _ReadFailure:
    """Stands in the queue where the source raised an exception."""

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception


@final
class _SharedQueue:
    """The data that the thread and its reader share.

    The thread holds nothing else, least of all the iterator: one that is dropped in the
    middle of a loop is collected at once, and ends its thread. Queues tell each side
    when to continue; a `threading.Condition`, which is written in Python, costs a busy
    machine more than most batches.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        size: int,
        nice: int,
        destination: Destination | None,
    ) -> None:
        self.history = cursors.PositionHistory(source, _EVERY)
        self.size, self.nice, self.destination = size, nice, destination
        # Of the two locks no thread ever holds both,
        # and none is held while a queue is waited for.
        # The position of the reader, in the units of the history.
        self.given = 0
        # Elements, `_ReadFailure` or `_End`, each with the position behind it.
        self.ready: queue.SimpleQueue[tuple[Any, int]] = queue.SimpleQueue()
        # Taken from the queue by readers that were interrupted before they got them.
        self.taken: collections.deque[tuple[Any, int]] = collections.deque()
        # Gets an entry when the thread shall look again whether it can read.
        self.news: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Held while the source is read: its position can be asked for only in between.
        self.reading = threading.Lock()
        # Guards `given` and `closes`.
        self.counting = threading.Lock()
        # The position behind an exception that the reader has not got yet.
        self.failure: Any = None
        self.over = self.stopped = self.is_waiting = False
        # Whether the thread has read the last element.
        self.has_ended = False
        # Closes the source; the thread calls it at its end.
        self.closes: Callable[[], None] | None = None
        # The most units of any element so far.
        self.largest = 1

    def fill(self) -> None:
        """Runs in the thread: reads until told to stop."""
        try:
            self.read_on()
        except BaseException as e:
            self.ready.put((_ReadFailure(e), self.given))
        finally:
            self.close_source()

    def close_source(self) -> None:
        """Closes the source, if that was asked for and has not been done."""
        # The thread and `close` may both come here; only one finds the function.
        with self.counting:
            closes, self.closes = self.closes, None
        if closes is not None:
            closes()

    def read_on(self) -> None:
        """Reads until told to stop, or until the end."""
        # A priority belongs to a thread, so that only the thread itself can lower it.
        cpu_threads.yield_to_steps(self.nice)
        while self.wait():
            with self.reading:
                if self.stopped:
                    return
                found = self.read()
                self.ready.put((found, self.history.read_so_far))
                self.forget()
            if isinstance(found, _End):
                self.has_ended = True
                return
            # The thread may wait long now, and an element that the reader has dropped
            # must not stay alive because of this variable.
            del found

    def wait(self) -> bool:
        """Waits until there is room for an element; False if told to stop."""
        while not self.stopped:
            # First set the sign, then look once more: a reader that makes room between
            # the two sees the sign and sends news, so none is missed.
            self.is_waiting = not self.has_room()
            if not self.is_waiting or self.has_room():
                self.is_waiting = False
                return True
            try:
                self.news.get(timeout=_LOOK)
            except queue.Empty:
                # A reader that was interrupted after it took an exception could not
                # say so.
                if not self.ready.qsize():
                    self.pass_failure()
        return False

    def has_room(self) -> bool:
        """Whether there is room for another element, and no exception before it."""
        return self.failure is None and self.ready.qsize() < self.size

    def tell(self) -> None:
        """Makes the thread look again, if it waits."""
        if self.is_waiting:
            self.news.put(None)

    def read(self) -> object:
        """Returns the next element, a `_ReadFailure` or an `_End`."""
        before = self.history.read_so_far
        try:
            found = self.history.read(1)
        except BaseException as e:
            self.failure = self.history.forget_failure()
            return _ReadFailure(e)
        if not len(found):
            return _End()
        self.measure(self.history.read_so_far - before)
        if self.destination is not None:
            self.size = max(self.size, self.destination.room(found[0]))
        return found[0]

    def pass_failure(self) -> None:
        """Moves the reader's position behind an exception that the reader got."""
        with self.reading:
            if self.failure is not None:
                self.history.remember(self.failure)
                self.failure = None
        self.tell()

    def measure(self, units: int) -> None:
        """Adapts the distance of remembered positions to the size of the elements."""
        if units > self.largest:
            self.largest = units
            self.history.every = _EVERY * units

    def forget(self) -> None:
        """Drops positions that no one can ask for any more."""
        self.history.forget_before(self.given - BACK * self.largest)

    def position_before(self, index: int) -> dict[str, Any]:
        """Returns the position of the reader, who is at `index`."""
        # The source is behind an exception that the reader has not got yet. A position
        # that is remembered from before leads up to it again.
        if self.failure is not None:
            return self.history.remembered_position(index)
        return self.history.position_before(index)

    def stop(self) -> None:
        """Tells the thread to end, and a waiting reader that no element will come."""
        self.stopped = True
        self.news.put(None)
        self.ready.put((_End(), self.given))


# The readers with a thread; weak, so that being listed keeps none alive.
_running: weakref.WeakSet[ReadAhead] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Ends all threads before the interpreter ends.

    A thread that is inside JAX then crashes the process.
    """
    threads = [ahead.tell_to_stop() for ahead in list(_running)]
    end = time.monotonic() + _LAST_GOODBYE
    for thread in threads:
        if thread is not None:
            thread.join(max(0.0, end - time.monotonic()))


@final
class ReadAhead(ProcessBound, cursors.Cursor):
    """Reads up to `size` elements of a source ahead, in a thread.

    Args:
        source: the source; only the thread may touch it from now on.
        size: how many elements may wait; 0 reads when asked, without a thread.
        what: names the source in the thread's name and in log messages.
        nice: the niceness of the thread, from 0 to 19.
        destination: where the source sends its elements, if they take a while. More
            than `size` may then wait, and the reader gets one when as many follow it as
            may wait, or when it has arrived.
    """

    _bound_title = "An iterator with a thread"
    _instead = "Save its get_state(), and give that to set_state of another iterator."
    # Of an object whose `__init__` did not end, too.
    _shared: _SharedQueue | None = None
    _thread: threading.Thread | None = None

    def __init__(
        self,
        source: cursors.Cursor,
        size: int,
        what: str,
        nice: int = 0,
        destination: Destination | None = None,
    ) -> None:
        self._source, self._destination = source, destination
        self._size, self._nice = size, nice
        self._what = what
        self._starting = threading.Lock()
        self._is_closed = False
        # The remembered positions and the reader's place when it was closed.
        self._closed: tuple[cursors.PositionHistory, int] | None = None

    def _start(self, state: dict[str, Any] | None = None) -> _SharedQueue:
        """Starts to read, from a position if one is given."""
        shared = _SharedQueue(self._source, self._size, self._nice, self._destination)
        if state is not None:
            shared.history.return_to(state)
            shared.given = shared.history.read_so_far
        if self._size:
            self._thread = threading.Thread(
                target=first_elements.carry_to_thread(shared.fill),
                name=f"unisono-{self._what}",
                daemon=True,
            )
            self._thread.start()
            _running.add(self)
        self._shared = shared
        return shared

    def read(self, count: int) -> Sequence[Any]:
        """Returns the next elements, and waits for the thread if it must."""
        if self._is_closed:
            return []
        shared = self._shared
        if shared is None:
            # Several threads may read; only one may start the thread.
            with self._starting:
                shared = self._shared or self._start()
        if not self._size:
            direct = shared.history.read(count)
            shared.given = shared.history.read_so_far
            shared.measure(self._source.units(direct))
            shared.forget()
            return direct
        found: list[Any] = []
        while len(found) < count and not shared.over:
            one, number = self._wait(shared)
            shared.tell()
            if isinstance(one, _End):
                shared.over = True
                # Put back for other threads that wait for an element.
                shared.ready.put((one, number))
            elif isinstance(one, _ReadFailure):
                shared.pass_failure()
                try:
                    raise one.exception
                finally:
                    # The exception's traceback holds this frame, which would hold the
                    # exception, and both would keep the thread alive.
                    del one
            else:
                if self._destination is not None:
                    self._wait_for_arrival(shared, one, number)
                found.append(one)
                with shared.counting:
                    # Not a sum: after an interrupt that lost an element, a sum would be
                    # wrong for good.
                    shared.given = max(shared.given, number)
        return found

    def _wait(self, shared: _SharedQueue) -> tuple[Any, int]:
        """Returns the next entry of the queue, and warns if it takes long.

        Raises:
            RuntimeError: the thread has ended without one.
        """
        waited = 0.0
        if shared.taken:
            # Another thread may take it first.
            with contextlib.suppress(IndexError):
                return shared.taken.popleft()
        while True:
            thread = self._thread
            try:
                return shared.ready.get(timeout=_LOOK)
            except queue.Empty:
                waited += _LOOK
                if (
                    thread is not None
                    and not thread.is_alive()
                    and shared.ready.empty()
                ):
                    raise RuntimeError(
                        f"The thread that reads the {self._what} has ended before it "
                        "gave the next element. Begin another iteration."
                    ) from None
                if waited % _PATIENCE == 0:
                    _log.warning(
                        "Still waiting for the next element of the %s after %.0f s.",
                        self._what,
                        waited,
                    )

    def _wait_for_arrival(self, shared: _SharedQueue, one: Any, number: int) -> None:
        """Waits until enough entries follow an element, or until it has arrived."""
        assert self._destination is not None
        try:
            while (
                not shared.has_ended
                and shared.has_room()
                and not self._destination.has_arrived(one)
            ):
                time.sleep(_GLANCE)
        except BaseException:
            # An interrupt: whoever reads next gets the element.
            shared.taken.append((one, number))
            raise

    def units(self, found: Any) -> int:
        """Returns the units of the source."""
        return self._source.units(found)

    def get_state(self, back: int = 0) -> dict[str, Any]:
        """Returns the position of the reader, not of the thread.

        Args:
            back: how many units the reader put back.
        """
        if self._closed is not None:
            history, given = self._closed
            return {"trail": history.remembered_position(given - back)}
        if self._shared is None:
            return {"trail": cursors.history_state_at(self._source.get_state())}
        shared = self._shared
        if not shared.reading.acquire(timeout=_BUSY):
            # The source is waiting for something. A position from a little before is
            # remembered, with the number of elements to pass over from there.
            return {"trail": shared.history.remembered_position(shared.given - back)}
        try:
            return {"trail": shared.position_before(shared.given - back)}
        finally:
            shared.reading.release()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at another position; at the old one if the source refuses it."""
        # Asked for first: `stop` drops the history that knows it.
        before = self.get_state()
        self.stop()
        try:
            self._start(state["trail"])
        except BaseException:
            self._start(before["trail"])
            raise

    def tell_to_stop(self) -> threading.Thread | None:
        """Tells the thread to end and returns it; None if there is no thread."""
        shared, self._shared = self._shared, None
        thread, self._thread = self._thread, None
        if shared is None or thread is None:
            return None
        shared.stop()
        # The thread may be waiting for notes of other workers, which may never come.
        self._source.cancel()
        return thread

    def stop(self) -> None:
        """Ends the thread, and waits a little for it."""
        thread = self.tell_to_stop()
        # A thread cannot join itself; it comes here when it drops the last reference.
        if thread is not None and thread is not threading.current_thread():
            thread.join(_GOODBYE)

    def close(self) -> None:
        """Ends the thread; there are no more elements."""
        if self._is_closed:
            return
        self._is_closed = True
        shared, thread = self._shared, self._thread
        if shared is not None and shared.history.has_marks:
            self._closed = (shared.history, shared.given)
        if shared is None or thread is None:
            self._source.close()
            return
        # Set before the thread is told to stop, so
        # that it finds the function at its end.
        shared.closes = self._source.close
        self.stop()
        if not thread.is_alive():
            # A thread that is still alive is in a user's function and uses the source;
            # it closes it when the function returns.
            shared.close_source()

    def __del__(self, _is_ending: Any = sys.is_finalizing) -> None:
        # When the interpreter ends, modules may be gone already, even `sys`; so the
        # check is a default argument. Daemon threads end with the interpreter.
        if not _is_ending():
            self.stop()


@final
class Prefetch(nodes.AllElements):
    """The same elements, read ahead in a thread."""

    size: int

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that reads ahead.

        Rows of a table need no thread: choosing them costs nothing.
        """
        if self.size == 0 or self.rows() is not None:
            return make()
        return ReadAhead(make(), self.size, f"prefetch of {self}")

    def __str__(self) -> str:
        return f"Prefetch({self.size})"
