"""Reading ahead in a thread."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from typing import Any

from unisono._src import priority
from unisono._src.input import cursors

_LOG = logging.getLogger("unisono")
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


class _End:
    """Comes after the last element."""


class _Failure:
    """Comes where the source raised an exception."""

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception


class _Tank:
    """What the thread and its reader share. The thread holds nothing else.

    So an iterator that is dropped in the middle of a loop is collected at once, and
    its thread ends. Queues tell each when to go on: a condition, which is written in
    Python, costs a busy machine more than most batches.
    """

    def __init__(self, source: cursors.Cursor, size: int, nice: int) -> None:
        self.trail = cursors.Trail(source, _EVERY)
        self.nice = nice
        # How far the reader is, in the units of the trail.
        self.given = 0
        self.ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # An entry for each element that may be read.
        self.room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(size):
            self.room.put(None)
        # An entry when the reader has seen an exception.
        self.seen: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Held while the source is read, so that its position can be asked for.
        self.reading = threading.Lock()
        self.over = self.stopped = False
        # The most units that one element ever had.
        self.largest = 1

    def fill(self) -> None:
        """The thread: read until told to stop."""
        priority.yield_to_steps(self.nice)
        while True:
            self.room.get()
            with self.reading:
                if self.stopped:
                    return
                found = self.read()
                self.ready.put(found)
                self.forget()
            if isinstance(found, _End):
                return
            has_failed = isinstance(found, _Failure)
            # Not while waiting: what the reader let go shall be gone.
            del found
            if has_failed:
                self.seen.get()

    def read(self) -> Any:
        """The next element, or what came instead of one."""
        before = self.trail.read_so_far
        try:
            found = self.trail.read(1)
        except BaseException as e:
            return _Failure(e)
        if not len(found):
            return _End()
        self.measure(self.trail.read_so_far - before)
        return found[0]

    def measure(self, units: int) -> None:
        """Adapt the distance of the positions to the size of the elements."""
        if units > self.largest:
            self.largest = units
            self.trail.every = _EVERY * units

    def forget(self) -> None:
        """Drop positions that no one will ask for."""
        self.trail.forget_before(self.given - BACK * self.largest)

    def stop(self) -> None:
        """End the thread, and tell who waits for an element that none will come."""
        self.stopped = True
        self.room.put(None)
        self.seen.put(None)
        self.ready.put(_End())


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

    def _start(self, state: dict[str, Any] | None = None) -> _Tank:
        self._tank = _Tank(self._source, self._size, self._nice)
        if state is not None:
            self._tank.trail.return_to(state)
            self._tank.given = self._tank.trail.read_so_far
        if not self._size:
            return self._tank
        self._thread = threading.Thread(
            target=self._tank.fill, name=f"unisono-{self._what}", daemon=True
        )
        self._thread.start()
        return self._tank

    def read(self, count: int) -> Any:
        """The next elements, waiting for the thread where it must."""
        tank = self._tank or self._start()
        if not self._size:
            direct = tank.trail.read(count)
            tank.given = tank.trail.read_so_far
            tank.measure(self._source.units(direct))
            tank.forget()
            return direct
        found: list[Any] = []
        while len(found) < count and not tank.over:
            one = self._wait(tank)
            if isinstance(one, _End):
                tank.over = True
            elif isinstance(one, _Failure):
                tank.room.put(None)
                tank.seen.put(None)
                try:
                    raise one.exception
                finally:
                    # Else it would keep this frame alive, and that the thread.
                    del one
            else:
                found.append(one)
                tank.given += self._source.units(found[-1:])
                tank.room.put(None)
        return found

    def _wait(self, tank: _Tank) -> Any:
        waited = 0.0
        while True:
            try:
                return tank.ready.get(timeout=_PATIENCE)
            except queue.Empty:
                waited += _PATIENCE
                _LOG.warning(
                    "Waiting since %.0f s for the next element of %s.",
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
        if self._tank is None:
            return {"trail": cursors.at(self._source.get_state())}
        tank = self._tank
        if not tank.reading.acquire(timeout=_BUSY):
            # The source waits for something. Where it was a little before is known.
            return {"trail": tank.trail.remembered(tank.given - back)}
        try:
            return {"trail": tank.trail.before(tank.given - back)}
        finally:
            tank.reading.release()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at another position."""
        self._stop()
        self._start(state["trail"])

    def _stop(self) -> None:
        tank, self._tank = self._tank, None
        thread, self._thread = self._thread, None
        if tank is None or thread is None:
            return
        tank.stop()
        self._source.cancel()
        if thread is not threading.current_thread():
            thread.join(_GOODBYE)

    def close(self) -> None:
        """End the thread."""
        self._stop()
        self._source.close()

    def __del__(self, _is_ending: Any = sys.is_finalizing) -> None:
        # When the interpreter ends, its modules are gone, and the thread with it.
        if not _is_ending():
            self._stop()
