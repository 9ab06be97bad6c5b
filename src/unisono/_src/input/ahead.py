"""Reading ahead in a thread."""

from __future__ import annotations

import collections
import logging
import threading
from typing import Any

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


class _Tank:
    """What the thread and its reader share. The thread holds nothing else.

    So an iterator that is dropped in the middle of a loop is collected at once, and
    its thread ends.
    """

    def __init__(self, source: cursors.Cursor, size: int) -> None:
        self.trail = cursors.Trail(source, _EVERY)
        self.size = size
        # How far the reader is, in the units of the trail.
        self.given = 0
        self.ready: collections.deque[Any] = collections.deque()
        self.changed = threading.Condition()
        # Held while the source is read, so that its position can be asked for.
        self.reading = threading.Lock()
        self.failure: BaseException | None = None
        self.over = self.stopped = False
        # The most units that one element ever had.
        self.largest = 1

    def fill(self) -> None:
        """The thread: read until told to stop."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.stopped or self._has_room())
                if self.stopped:
                    return
            found: Any = ()
            failure = None
            with self.reading:
                if self.stopped:
                    return
                before = self.trail.read_so_far
                try:
                    found = self.trail.read(1)
                    self.measure(self.trail.read_so_far - before)
                except BaseException as e:
                    failure = e
                with self.changed:
                    self.ready.extend(found)
                    self.failure = failure
                    self.over = not len(found) and failure is None
                    self.changed.notify_all()
                    if self.over:
                        return
                self.forget()
            del found, failure

    def measure(self, units: int) -> None:
        """Adapt the distance of the positions to the size of the elements."""
        if units > self.largest:
            self.largest = units
            self.trail.every = _EVERY * units

    def forget(self) -> None:
        """Drop positions that no one will ask for."""
        self.trail.forget_before(self.given - BACK * self.largest)

    def _has_room(self) -> bool:
        return len(self.ready) < self.size and self.failure is None

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.ready.clear()
            self.changed.notify_all()


class Ahead(cursors.Cursor):
    """A stream that a thread reads up to `size` elements ahead.

    Args:
        source: what is read; only the thread touches it from now on.
        size: how many elements may wait; 0 reads when asked, without a thread.
        what: names the stream, for who looks at threads or waits for it.
    """

    def __init__(self, source: cursors.Cursor, size: int, what: str) -> None:
        self._source = source
        self._size = size
        self._what = what
        self._tank: _Tank | None = None
        self._thread: threading.Thread | None = None

    def _start(self, state: dict[str, Any] | None = None) -> _Tank:
        self._tank = _Tank(self._source, self._size)
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
        while len(found) < count:
            with tank.changed:
                self._wait(tank)
                if tank.ready:
                    found.append(tank.ready.popleft())
                    tank.given += self._source.units(found[-1:])
                    tank.changed.notify_all()
                elif tank.failure is not None:
                    failure, tank.failure = tank.failure, None
                    tank.changed.notify_all()
                    try:
                        raise failure
                    finally:
                        # Else it would keep this frame alive, and that the thread.
                        del failure
                else:
                    break
        return found

    def _wait(self, tank: _Tank) -> None:
        waited = 0.0
        while not (tank.ready or tank.failure or tank.over or tank.stopped):
            if tank.changed.wait(_PATIENCE):
                continue
            waited += _PATIENCE
            _LOG.warning(
                "Waiting since %.0f s for the next element of %s.", waited, self._what
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
            start = {"source": self._source.get_state(), "pass": 0, "index": 0}
            return {"trail": start}
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
        if thread is not threading.current_thread():
            thread.join(_GOODBYE)

    def close(self) -> None:
        """End the thread."""
        self._stop()
        self._source.close()

    def __del__(self) -> None:
        self._stop()
