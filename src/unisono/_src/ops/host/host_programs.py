"""Programs of XLA for photos in datasets' functions, where NumPy takes much longer.

NumPy reads and writes the whole image at each step of the arithmetic, and moves numbers
one by one where they are not neighbours. To compile a program takes as long as NumPy
takes for some hundred photos, so it is for what comes again and again.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np

from unisono._src.foundation import jax_internals
from unisono._src.values import jax_traces

# The widest vectors of the processor, of which XLA takes half; and its older code for
# loops, which compiles in two thirds of the time and runs as fast.
_OPTIONS: dict[str, str | bool] = {
    "xla_cpu_prefer_vector_width": "512",
    "xla_cpu_use_fusion_emitters": False,
}
# Read by a CPU of JAX's when it is made: the number of its threads.
_THREADS = "PJRT_NPROC"
_making = threading.Lock()


def _take_over(array: jax.Array) -> np.ndarray:
    """Returns the memory of an array of JAX's, which no one else has, to be changed.

    What NumPy makes of the array itself can only be read.
    """
    address = array.block_until_ready().unsafe_buffer_pointer()
    memory: Any = (ctypes.c_char * array.nbytes).from_address(address)
    memory.array = array  # The memory lasts as long as it.
    return np.ndarray(array.shape, array.dtype, memory)


@final
class Program:
    """Computes with arrays of fixed sizes, once there have been enough of them.

    Args:
        function: makes an array of JAX's of arrays.
        worth: the program is compiled for the use after so many.

    Attributes:
        compiled: the compiled program; None if there is none yet.
    """

    def __init__(self, function: Callable[..., jax.Array], worth: int) -> None:
        self._function, self._worth = function, worth
        self._uses = 0
        self.compiled: Callable[..., jax.Array] | None = None
        self._compiling = threading.Lock()

    def prepare(self, uses: int, *arguments: np.ndarray | jax.ShapeDtypeStruct) -> bool:
        """Returns whether the program can run, after compiling it if it is worth it.

        Args:
            uses: how many runs are wanted now.
            *arguments: arrays, or only sizes and types, as all runs have them; of
                types that JAX keeps.
        """
        if self.compiled is not None:
            return uses > 0
        self._uses += uses
        # A function that JAX traces would make the program a part of its own.
        if self._uses <= self._worth or not jax_traces.is_clean():
            return False
        try:
            return self._compile(*arguments)
        except jax.errors.JaxRuntimeError:  # There is no memory.
            return False

    def run(self, *arguments: np.ndarray) -> np.ndarray | None:
        """Returns what the function makes; None if it is to be computed otherwise."""
        if self.compiled is None:
            return None
        try:
            # A compiled program computes also where JAX traces a function.
            return _take_over(self.compiled(*arguments))
        except Exception:
            # There is no memory, or the user has told JAX to refuse transfers or NaN,
            # or to compile nothing. What may have been wrong is so without it, too.
            return None

    def _compile(self, *arguments: np.ndarray | jax.ShapeDtypeStruct) -> bool:
        """Compiles the program; returns False if another thread does."""
        device = find_device()
        if device is None or not self._compiling.acquire(blocking=False):
            return False
        try:
            here = jax.sharding.SingleDeviceSharding(device)
            program = jax.jit(self._function, in_shardings=here, out_shardings=here)
            # The user's mesh has other devices, and what the user forbids is meant for
            # programs of the user.
            own = jax.make_mesh((1,), ("host",), devices=[device])
            with jax.set_mesh(own), jax.no_tracing(False):
                self.compiled = _compile(program.lower(*arguments))
        finally:
            self._compiling.release()
        return True


def _compile(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Returns a compiled program."""
    try:
        return lowered.compile(_OPTIONS)
    except jax.errors.JaxRuntimeError:  # Another version of XLA has no such options.
        return lowered.compile()


def find_device() -> jax.Device | None:
    """Returns a CPU whose programs run in the thread that calls them; None without one.

    It is none of `jax.devices()`. Those may not have started yet, and a program may
    still say how many there shall be; and they hand programs over to threads of their
    own, of which a dataset has enough.
    """
    if jax_internals.find_missing(jax_internals.HOST_PROGRAMS):
        return None
    with _making:
        return _make_device()


@functools.cache
def _make_device() -> jax.Device:
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
