"""Runs functions in threads, and says which threads are over."""

import sys
import threading
import time


def at_once(*functions):
    """Run functions in threads that begin together, and raise the first error."""
    begin, errors = threading.Barrier(len(functions)), []

    def work(function):
        try:
            begin.wait(20)
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f,)) for f in functions]
    before = sys.getswitchinterval()
    # Python then lets another thread go on after nearly every instruction.
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]


def repeated(function, times):
    """A function that calls another one several times."""
    return lambda: [function() for _ in range(times)]


def _is_idle(thread):
    """Whether a thread of datasets waits for the next reader."""
    frame = sys._current_frames().get(thread.ident)
    waits = frame is None or frame.f_code.co_name == "_worker"
    return thread.name.startswith("unisono-map") and waits


def is_over(thread, seconds):
    """Whether a thread has ended, or is idle, after some seconds at most."""
    end = time.monotonic() + seconds
    while thread.is_alive() and not _is_idle(thread) and time.monotonic() < end:
        thread.join(0.01)
    return not thread.is_alive() or _is_idle(thread)
