"""A CPU for programs that a dataset's functions run: in the thread that calls them."""

from __future__ import annotations

import functools
import os
import threading

import jax

from unisono._src.foundation import jax_internals

_THREADS = "PJRT_NPROC"
_making = threading.Lock()


def find() -> jax.Device | None:
    """Returns the CPU; None if the installed JAX cannot make one.

    It is none of `jax.devices()`. Those may not have started yet, and a program may
    still say how many there shall be; and they hand programs over to threads of their
    own, of which a dataset has enough.
    """
    if jax_internals.find_missing(jax_internals.HOST_PROGRAMS):
        return None
    with _making:
        return _make()


@functools.cache
def _make() -> jax.Device:
    before = os.environ.get(_THREADS)
    # Read once, here. With more threads than one, parts of a program run in others.
    os.environ[_THREADS] = "1"
    try:
        client = jax_internals.make_cpu_client(asynchronous=False)
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before
    made: jax.Device = client.local_devices()[0]
    return made
