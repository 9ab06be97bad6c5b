"""Saving while the program goes on: one thread, one checkpoint at a time."""

from __future__ import annotations

import atexit
import concurrent.futures.thread
import logging
import sys
import threading
import warnings
import weakref
from collections.abc import Callable

from unisono._src.foundation import thread_priority

_log = logging.getLogger("unisono")
# The least that the system gives: what steps leave over, and a little if they do not.
_NICE = 19
_busy: weakref.WeakSet[Background] = weakref.WeakSet()


class Background:
    """Runs one job at a time in a thread of its own.

    A job that fails is reported by whatever the program calls next: `start`, `wait`,
    or the end of the program.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._what = ""

    def start(self, job: Callable[[], None], what: str, timeout: float) -> None:
        """Begin a job, when the one before has ended.

        Args:
            job: what to do.
            what: what it is, for messages.
            timeout: how many seconds to wait for the job before.

        Raises:
            TimeoutError: it has not ended by then.
            Exception: it has failed.
        """
        self.wait(timeout)

        def run() -> None:
            thread_priority.yield_to_steps(_NICE)
            try:
                job()
            except BaseException as error:
                self._error = error

        self._what = what
        # A daemon, because `_finish_all` must wait for it: when Python itself joins
        # threads, a save can no longer start the helper threads it needs.
        self._thread = threading.Thread(target=run, name="unisono-save", daemon=True)
        _busy.add(self)
        self._thread.start()

    def __del__(self) -> None:
        if getattr(self, "_error", None) is not None:
            _log.error("The background save of %s failed: %s", self._what, self._error)

    def wait(self, timeout: float) -> None:
        """Wait for the job that runs, if any.

        Raises:
            TimeoutError: it has not ended in time.
            Exception: it has failed.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(
                    f"The background save of {self._what} has not ended within "
                    f"{timeout:g} seconds; the disk may be stuck."
                )
            self._thread = None
            _busy.discard(self)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def finish(self, timeout: float) -> None:
        """Wait at the end of the program.

        Raises:
            TimeoutError: the job has not ended in time.
            Exception: it has failed.
        """
        if sys.version_info >= (3, 12):
            # Of what the library that writes could not begin.
            warnings.filterwarnings("ignore", ".*never awaited", RuntimeWarning)
        self.wait(timeout)


class Ending:
    """Whether the program has ended: its threads may go on, no new one may begin."""

    has_begun = False


# How long the end of a program waits for a checkpoint that is being written.
_EXIT_SECONDS = 600.0


def _finish_all() -> None:
    failures: list[Exception] = []
    Ending.has_begun = True
    for background in list(_busy):
        try:
            background.finish(_EXIT_SECONDS)
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


# `atexit` comes after the end of thread pools, which a save still needs. Their module,
# imported above, has registered its own end before this, and so comes after it.
_POOLS = concurrent.futures.thread
getattr(threading, "_register_atexit", atexit.register)(_finish_all)
