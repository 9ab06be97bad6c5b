"""Says why, when native code is about to abort this process.

XLA aborts a process whose coordination service is gone, and Gloo one that receives a
message of another size than it expects. Neither tells Python. They raise SIGABRT, whose
handlers of Python would run too late; so a handler is set by the C library, which calls
Python at once, in whatever thread it happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any, final

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@final
class LastWords:
    """Writes a line to standard error when this process is aborted.

    Args:
        say: returns the line.
    """

    def __init__(self, say: Callable[[], str]) -> None:
        self._say = say
        # The C library keeps only the address, so this must live on.
        self._handler = _HANDLER(self._write)
        self._set: Any = None

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
