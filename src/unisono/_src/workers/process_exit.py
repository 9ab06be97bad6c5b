"""Tells the other workers, or the user, how the process of this worker ends.

An exception that nobody catches is published. XLA aborts a process whose coordination
service is gone, and Gloo one that receives a message of another size than it expects.
Neither tells Python. They raise SIGABRT, whose handlers of Python would run too late;
so a handler is set by the C library, which calls Python at once, in whatever thread it
happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, final

from unisono._src.foundation import errors
from unisono._src.workers import worker_records
from unisono._src.workers.peers import Peers
from unisono._src.workers.step_history import StepHistory
from unisono._src.workers.worker_records import RUNS, OwnRecord

# How long the last look may take before native code aborts the process.
_ABORT_SECONDS = 1.0
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@final
class AbortHandler:
    """Writes a line to standard error when this process is aborted.

    Args:
        say: returns the line.
    """

    def __init__(self, say: Callable[[], str]) -> None:
        self._say = say
        # The C library keeps only the address, so this must live on.
        self._handler = _HANDLER(self._write)
        self._set: Any = None  # A function of the C library.

    def start(self) -> None:
        """Sets the handler, unless the program has one, such as `faulthandler`."""
        # Elsewhere the C library has another name, or no such signal.
        if os.name != "posix":
            return
        self._set = ctypes.CDLL(None).signal
        self._set.restype = ctypes.c_void_p
        self._set.argtypes = (ctypes.c_int, ctypes.c_void_p)
        address = ctypes.cast(self._handler, ctypes.c_void_p)
        # `signal` cannot look without setting. It returns the handler before; 0 is the
        # system's own.
        previous = self._set(signal.SIGABRT, address)
        if previous:
            self._set(signal.SIGABRT, previous)
            self._set = None

    def stop(self) -> None:
        """Takes the handler away; an abort is silent then."""
        if self._set is not None:
            self._set(signal.SIGABRT, None)
            self._set = None

    def _write(self, number: int) -> None:
        # The process ends after this, whatever happens here.
        with contextlib.suppress(BaseException):
            os.write(2, f"\nunisono: {self._say()}\n".encode("utf-8", "replace"))


@final
class ExitHooks:
    """What this worker does when its process ends, in whichever way.

    Args:
        own: the record of this worker.
        peers: the other workers.
        history: the steps of this worker.
        pause: the seconds between two looks at the others' records.
    """

    def __init__(
        self, own: OwnRecord, peers: Peers, history: StepHistory, pause: float
    ) -> None:
        self._own = own
        self._peers = peers
        self._history = history
        self._pause = pause
        self._abort = AbortHandler(self._explain_abort)
        self._previous_hook = sys.excepthook

    def start(self) -> None:
        """Has exceptions that nobody catches, and aborts, come here."""
        self._previous_hook = sys.excepthook
        sys.excepthook = self._on_exception
        self._abort.start()

    def stop(self) -> None:
        """Lets an abort be silent: a handler in Python cannot run when Python ends."""
        self._abort.stop()

    def abandon(self) -> None:
        """Undoes `start` in a forked child."""
        self._abort.stop()
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook

    def _on_exception(
        self,
        kind: type[BaseException],
        value: BaseException,
        tb: TracebackType | None,
    ) -> None:
        """Tells the others about an exception that nobody caught."""
        self._own.fail(value)
        self._previous_hook(kind, value, tb)

    def _explain_abort(self) -> str:
        """Returns why native code aborts this process, as far as this worker knows."""
        reached: list[bool] = []

        def look() -> None:
            # The others publish what they do a few times a second.
            while self._own.verdict is None and time.monotonic() < until:
                with contextlib.suppress(Exception):
                    self._peers.exchange()
                    reached.append(True)
                time.sleep(self._pause)

        until = time.monotonic() + _ABORT_SECONDS
        # In a thread, because the aborted one may hold a lock that this needs.
        looks = threading.Thread(target=look, daemon=True)
        looks.start()
        looks.join(_ABORT_SECONDS)
        last = self._history.last(1)
        label = worker_records.shorten(last[0][2]) if last else "before the first"
        if self._own.verdict is not None:
            why = str(self._own.verdict)
        elif reached:
            why = "no worker is known to have failed."
        else:
            why = (
                "the coordination service cannot be reached. It is a process that the "
                "first worker starts; XLA ends all workers without it."
            )
        return (
            f"XLA or Gloo aborts worker {self._own.worker}, which is in step "
            f"{self._history.step} ({label}): {why}"
        )

    def leave(self, compare_more: Callable[[], None]) -> None:
        """Tells the others that the program has ended.

        Ends this process with a failure if the workers have not done the same. The last
        worker that leaves sees the records of all.

        Args:
            compare_more: looks for what the steps do not show, once the others'
                records are read.
        """
        has_worked = self._own.state == RUNS
        self._own.leave()
        # A worker that raises an error about others need not look for a second one.
        if not has_worked or self._own.has_noticed:
            return
        with contextlib.suppress(Exception):
            self._peers.exchange()
            compare_more()
        found = self._own.verdict
        if not isinstance(found, errors.WorkerMismatchError):
            found = self._peers.compare_counts()
        if found is not None:
            self._own.fail(found)
            end_with(found)


def end_with(error: errors.WorkerError) -> NoReturn:
    """Ends this process with a failure, while Python ends.

    An exception would not change the status with which Python ends.
    """
    traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
