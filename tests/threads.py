"""Runs functions at once, each in a thread of its own."""

import sys
import threading


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
