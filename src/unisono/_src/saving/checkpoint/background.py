"""Saving in a background thread, one checkpoint at a time."""

from __future__ import annotations

import atexit
import concurrent.futures.thread
import contextlib
import logging
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import final

from unisono._src.foundation import cpu_threads

_log = logging.getLogger("unisono")
# The lowest priority of the system: the thread gets the time that steps leave over.
_NICE = 19
# Those with a thread that may still run. Weak, so that a checkpoint can be collected.
_busy: weakref.WeakSet[BackgroundThread] = weakref.WeakSet()


@final
class BackgroundThread:
    """Runs one job at a time in a thread of its own.

    The error of a job that fails is raised by the next `start` or `wait`, or at the end
    of the program.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._what = ""
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[BackgroundThread], tuple[()]]:
        # A copy of a checkpoint saves by itself.
        return BackgroundThread, ()

    @contextlib.contextmanager
    def alone(self, timeout: float) -> Iterator[None]:
        """Runs a block after the job, while no other thread runs such a block.

        Args:
            timeout: how many seconds to wait for each of them.

        Raises:
            RuntimeError: the code is a part of the job itself.
            TimeoutError: the job or the other thread has not ended in time.
            Exception: the job has failed.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "A function that is called when a background save has ended cannot "
                "save or restore the same checkpoint; let another thread do it."
            )
        if not self._lock.acquire(timeout=timeout):
            raise TimeoutError(
                "Another thread that saves or restores the same checkpoint has not "
                f"ended within {timeout:g} seconds. If it is only slow, give "
                "CheckpointOptions a larger wait_seconds."
            )
        try:
            self.wait(timeout)
            yield
        finally:
            self._lock.release()

    def start(self, job: Callable[[], None], what: str, timeout: float) -> None:
        """Starts a job after the one before has ended.

        Args:
            job: the function to call.
            what: what the job writes, for messages.
            timeout: how many seconds to wait for the job before.

        Raises:
            TimeoutError: the job before has not ended in time.
            Exception: the job before has failed.
        """
        self.wait(timeout)

        def run() -> None:
            cpu_threads.yield_to_steps(_NICE)
            try:
                job()
            except BaseException as error:  # `wait` raises it in another thread.
                self._error = error

        self._what = what
        # A daemon, because `_finish_all` must wait for it: when Python itself joins
        # threads, a save can no longer start the helper threads it needs.
        self._thread = threading.Thread(target=run, name="unisono-save", daemon=True)
        _busy.add(self)
        self._thread.start()

    def __del__(self) -> None:
        # Nobody can call `wait` any more.
        if getattr(self, "_error", None) is not None:
            _log.error("The background save of %s failed: %s", self._what, self._error)

    def wait(self, timeout: float) -> None:
        """Waits for the job that runs, if any.

        Raises:
            TimeoutError: the job has not ended in time.
            Exception: the job has failed.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(
                    f"The background save of {self._what} has not ended within "
                    f"{timeout:g} seconds; the disk may be stuck. If it is only slow, "
                    "give CheckpointOptions a larger wait_seconds."
                )
            self._thread = None
            _busy.discard(self)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def finish(self, timeout: float) -> None:
        """Waits for the job at the end of the program.

        Raises:
            TimeoutError: the job has not ended in time.
            Exception: it has failed.
        """
        if sys.version_info >= (3, 12):
            # Orbax leaves coroutines behind that it could start no thread for. The
            # save is repeated without Orbax.
            warnings.filterwarnings("ignore", ".*never awaited", RuntimeWarning)
        self.wait(timeout)


@final
class Ending:
    """Whether the program is ending: threads may go on, but no new one can start.

    Attributes:
        has_begun: whether the end has begun.
    """

    has_begun = False


# How long the end of a program waits for a checkpoint.
_EXIT_SECONDS = 600.0


def _finish_all() -> None:
    """Waits for every background save, then raises the first error."""
    failures: list[Exception] = []
    Ending.has_begun = True
    for background in list(_busy):
        try:
            background.finish(_EXIT_SECONDS)
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


# A save needs thread pools. `atexit` runs after these are shut down, so the wait is
# registered where `concurrent.futures.thread` registers its shutdown. Functions run in
# reverse order there: that module must be imported, and so registered, before.
_POOLS = concurrent.futures.thread
getattr(threading, "_register_atexit", atexit.register)(_finish_all)
