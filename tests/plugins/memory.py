"""A run that has become large lets go of what it compiled, between modules."""

import ctypes
import gc
import os

import jax
import pytest

# Above this, compiled programs of earlier modules are dropped. Compiling what the next
# modules share with them again costs a second or two, so it is not done every time.
LARGE = 1.5e9


def resident_bytes():
    """Returns how much memory this process holds; 0 where that cannot be told."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def pytest_collection_finish():
    """Spares the garbage collector the modules, which stay anyway."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def memory():
    """Drops compiled programs after a module if the process has become large."""
    yield
    if resident_bytes() > LARGE:
        jax.clear_caches()
        gc.collect()
        # XLA frees in pieces, which the C library would keep for later.
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)
