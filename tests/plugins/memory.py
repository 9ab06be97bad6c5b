"""Drops compiled programs between tests if the process has become large.

It also has Python look for garbage less often, which took a tenth of the time.
"""

import ctypes
import gc
import os

import jax
import pytest

# Above so many bytes, the compiled programs of earlier modules are dropped. This does
# not happen after every module, because compiling shared programs again takes a second
# or two.
LARGE = 1.5e9
# Above so many they are dropped after a test, in the middle of a module.
VERY_LARGE = 2.3e9


def resident_bytes():
    """Returns the resident memory of this process; 0 on systems without `/proc`."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def pytest_collection_finish():
    """Makes the garbage collector skip the modules, which stay anyway.

    Tracing makes thousands of objects that stay as long as their program, and JAX adds
    work of its own to every collection. By default one starts every 700 objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def drop_programs_above(limit):
    """Drops compiled programs if the process has become larger than so many bytes."""
    if resident_bytes() > limit:
        jax.clear_caches()
        gc.collect()
        # XLA frees small pieces, which the C library would keep for later use.
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)


@pytest.fixture(autouse=True, scope="module")
def memory_of_module():
    """Drops compiled programs after a module if the process has become large."""
    yield
    drop_programs_above(LARGE)


@pytest.fixture(autouse=True)
def memory_of_test():
    """Drops compiled programs after a test if the process has become very large."""
    yield
    drop_programs_above(VERY_LARGE)
