"""Reading ahead in a thread."""

from __future__ import annotations

import atexit
import dataclasses
import logging
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, final

from unisono._src.foundation import thread_priority
from unisono._src.input.plan import cursors, nodes
from unisono._src.input.stages.selecting import Make

_log = logging.getLogger("unisono")
# After so many seconds without an element it is told what is waited for.
_PATIENCE = 60.0
# So many elements can be given back by a reader that did not use them.
BACK = 256
# A position is remembered every so many elements; it may hold a whole shuffle buffer.
_EVERY = 64
# So long a position is waited for while the source is being read.
_BUSY = 1.0
# So long a thread that was told to stop is waited for; it may sit in a user's code.
_GOODBYE = 5.0
# The same when the program ends.
_LAST_GOODBYE = 2.0
# So often the thread looks by itself whether it can go on.
_LOOK = 1.0


@final
class _End:
    """Comes after the last element."""


@final
class _ReadFailure:
    """Comes where the source raised an exception."""

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception


@final
class _Tank:
    """What the thread and its reader share. The thread holds nothing else.

    So an iterator that is dropped in the middle of a loop is collected at once, and
    its thread ends. Queues tell each when to go on: a condition, which is written in
    Python, costs a busy machine more than most batches.
    """

    def __init__(self, source: cursors.Cursor, size: int, nice: int) -> None:
        self.trail = cursors.Trail(source, _EVERY)
        self.size, self.nice = size, nice
        # How far the reader is, in the units of the trail.
        self.given = 0
        # Elements, or what came instead, each with the number of those read till then.
        self.ready: queue.SimpleQueue[tuple[Any, int]] = queue.SimpleQueue()
        # Has an entry when it may be worth while to look again.
        self.news: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Held while the source is read, so that its position can be asked for.
        self.reading = threading.Lock()
        self.counting = threading.Lock()
        # The position behind an exception that the reader has not seen.
        self.failure: Any = None
        self.over = self.stopped = self.is_waiting = False
        # What the thread does last.
        self.closes: Callable[[], None] | None = None
        # The most units that one element ever had.
        self.largest = 1

    def fill(self) -> None:
        """The thread: read until told to stop."""
        try:
            self.read_on()
        except BaseException as e:
            self.ready.put((_ReadFailure(e), self.given))
        finally:
            self.close_source()

    def close_source(self) -> None:
        """Close it, if that was asked for and has not been done."""
        with self.counting:
            closes, self.closes = self.closes, None
        if closes is not None:
            closes()

    def read_on(self) -> None:
        """Read until told to stop, or until the end."""
        thread_priority.yield_to_steps(self.nice)
        while self.wait():
            with self.reading:
                if self.stopped:
                    return
                found = self.read()
                self.ready.put((found, self.trail.read_so_far))
                self.forget()
            if isinstance(found, _End):
                return
            # Not while waiting: what the reader let go shall be gone.
            del found

    def wait(self) -> bool:
        """Wait until another element is wanted; False if none ever is."""
        while not self.stopped:
            # First the sign, then the look: no news can be missed.
            self.is_waiting = not self.has_room()
            if not self.is_waiting or self.has_room():
                self.is_waiting = False
                return True
            try:
                self.news.get(timeout=_LOOK)
            except queue.Empty:
                # A reader that is interrupted may tell no news.
                if not self.ready.qsize():
                    self.has_seen()
        return False

    def has_room(self) -> bool:
        """Whether another element can be read."""
        return self.failure is None and self.ready.qsize() < self.size

    def tell(self) -> None:
        """Make the thread look, if it waits."""
        if self.is_waiting:
            self.news.put(None)

    def read(self) -> Any:
        """The next element, or what came instead of one."""
        before = self.trail.read_so_far
        try:
            found = self.trail.read(1)
        except BaseException as e:
            self.failure = self.trail.forget_failure()
            return _ReadFailure(e)
        if not len(found):
            return _End()
        self.measure(self.trail.read_so_far - before)
        return found[0]

    def has_seen(self) -> None:
        """The reader has the exception, so its position is behind it now."""
        with self.reading:
            if self.failure is not None:
                self.trail.remember(self.failure)
                self.failure = None
        self.tell()

    def measure(self, units: int) -> None:
        """Adapt the distance of the positions to the size of the elements."""
        if units > self.largest:
            self.largest = units
            self.trail.every = _EVERY * units

    def forget(self) -> None:
        """Drop positions that no one will ask for."""
        self.trail.forget_before(self.given - BACK * self.largest)

    def before(self, index: int) -> dict[str, Any]:
        """The position of the reader, who is at `index`."""
        if self.failure is not None:
            return self.trail.remembered(index)
        return self.trail.before(index)

    def stop(self) -> None:
        """End the thread, and tell who waits for an element that none will come."""
        self.stopped = True
        self.news.put(None)
        self.ready.put((_End(), self.given))


_running: weakref.WeakSet[Ahead] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """A thread that is within JAX when the interpreter ends takes the process along."""
    threads = [ahead.tell_to_stop() for ahead in list(_running)]
    end = time.monotonic() + _LAST_GOODBYE
    for thread in threads:
        if thread is not None:
            thread.join(max(0.0, end - time.monotonic()))


@final
class Ahead(cursors.Cursor):
    """A stream that a thread reads up to `size` elements ahead.

    Args:
        source: what is read; only the thread touches it from now on.
        size: how many elements may wait; 0 reads when asked, without a thread.
        what: names the stream, for who looks at threads or waits for it.
        nice: how far the thread goes behind the others, from 0 to 19.
    """

    def __init__(
        self, source: cursors.Cursor, size: int, what: str, nice: int = 0
    ) -> None:
        self._source = source
        self._size, self._nice = size, nice
        self._what = what
        self._tank: _Tank | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_closed = False
        # What still tells the position when it is closed.
        self._closed: tuple[cursors.Trail, int] | None = None

    def _start(self, state: dict[str, Any] | None = None) -> _Tank:
        tank = _Tank(self._source, self._size, self._nice)
        if state is not None:
            tank.trail.return_to(state)
            tank.given = tank.trail.read_so_far
        if self._size:
            self._thread = threading.Thread(
                target=tank.fill, name=f"unisono-{self._what}", daemon=True
            )
            self._thread.start()
            _running.add(self)
        self._tank = tank
        return tank

    def read(self, count: int) -> Any:
        """The next elements, waiting for the thread where it must."""
        if self._is_closed:
            return []
        tank = self._tank
        if tank is None:
            with self._starting:
                tank = self._tank or self._start()
        if not self._size:
            direct = tank.trail.read(count)
            tank.given = tank.trail.read_so_far
            tank.measure(self._source.units(direct))
            tank.forget()
            return direct
        found: list[Any] = []
        while len(found) < count and not tank.over:
            one, number = self._wait(tank)
            tank.tell()
            if isinstance(one, _End):
                tank.over = True
                # For others who wait for it.
                tank.ready.put((one, number))
            elif isinstance(one, _ReadFailure):
                tank.has_seen()
                try:
                    raise one.exception
                finally:
                    # Else it would keep this frame alive, and that the thread.
                    del one
            else:
                found.append(one)
                with tank.counting:
                    # Not a sum: an interrupt that lost an element shall not count on.
                    tank.given = max(tank.given, number)
        return found

    def _wait(self, tank: _Tank) -> tuple[Any, int]:
        waited = 0.0
        while True:
            thread = self._thread
            try:
                return tank.ready.get(timeout=_LOOK)
            except queue.Empty:
                waited += _LOOK
                if thread is not None and not thread.is_alive() and tank.ready.empty():
                    raise RuntimeError(
                        f"The thread that reads the {self._what} has ended."
                    ) from None
                if waited % _PATIENCE == 0:
                    _log.warning(
                        "Waiting since %.0f s for the next element of the %s.",
                        waited,
                        self._what,
                    )

    def units(self, found: Any) -> int:
        """Those of the source."""
        return self._source.units(found)

    def get_state(self, back: int = 0) -> dict[str, Any]:
        """The position of the reader, not of the thread.

        Args:
            back: units that were read and not used.
        """
        if self._closed is not None:
            trail, given = self._closed
            return {"trail": trail.remembered(given - back)}
        if self._tank is None:
            return {"trail": cursors.at(self._source.get_state())}
        tank = self._tank
        if not tank.reading.acquire(timeout=_BUSY):
            # The source waits for something. Where it was a little before is known.
            return {"trail": tank.trail.remembered(tank.given - back)}
        try:
            return {"trail": tank.before(tank.given - back)}
        finally:
            tank.reading.release()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at another position; at the old one if that is refused."""
        before = self.get_state()
        self.stop()
        try:
            self._start(state["trail"])
        except BaseException:
            self._start(before["trail"])
            raise

    def tell_to_stop(self) -> threading.Thread | None:
        """Tell the thread to end, if there is one, and forget it."""
        tank, self._tank = self._tank, None
        thread, self._thread = self._thread, None
        if tank is None or thread is None:
            return None
        tank.stop()
        self._source.cancel()
        return thread

    def stop(self) -> None:
        """End the thread, waiting a little for it."""
        thread = self.tell_to_stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_GOODBYE)

    def close(self) -> None:
        """End the thread, and give no element any more."""
        if self._is_closed:
            return
        self._is_closed = True
        tank, thread = self._tank, self._thread
        if tank is not None and tank.trail.has_marks:
            self._closed = (tank.trail, tank.given)
        if tank is None or thread is None:
            self._source.close()
            return
        tank.closes = self._source.close
        self.stop()
        if not thread.is_alive():
            # Else it sits in a user's code, where nothing can be closed.
            tank.close_source()

    def __del__(self, _is_ending: Any = sys.is_finalizing) -> None:
        # When the interpreter ends, its modules are gone, and the thread with it.
        if not _is_ending():
            self.stop()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Prefetch(nodes.Keeping):
    """Elements read ahead in a thread."""

    size: int

    def selecting(self, make: Make) -> cursors.Cursor:
        """Rows need no thread: choosing them costs nothing."""
        if self.size == 0 or self.rows() is not None:
            return make()
        return Ahead(make(), self.size, f"prefetch of {self}")

    def __str__(self) -> str:
        return f"Prefetch({self.size})"
