"""Programs of XLA for photos in datasets' functions, where NumPy takes much longer.

NumPy reads and writes the whole image at each step of the arithmetic, and moves numbers
one by one where they are not neighbours. To compile a program takes as long as NumPy
takes for a hundred photos, so it is for sizes that come again and again.
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

# A program is compiled for a size that has come so many times.
WORTH = 96
# Images of fewer numbers cost NumPy less than the call of a program.
SMALL = 1 << 15
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
    """Computes with images of one size, once there have been enough of them.

    Args:
        function: makes an array of JAX's of the constants and one image.
        constants: numbers that the compiler must not know.

    Attributes:
        compiled: the compiled program; None if there is none yet.
    """

    def __init__(
        self, function: Callable[..., jax.Array], *constants: np.generic
    ) -> None:
        self._function, self._constants = function, constants
        self._uses = 0
        self.compiled: Callable[[np.ndarray], jax.Array] | None = None
        self._compiling = threading.Lock()

    def run(self, images: np.ndarray) -> np.ndarray | None:
        """Returns what the function makes of each image; None if NumPy shall do it.

        Args:
            images: [images, height, width, channels], in a type that JAX keeps.
        """
        if not len(images) or self._find(images[0], len(images)) is None:
            return None
        found = []
        for image in images:
            one = self.run_one(image)
            if one is None:
                return None
            found.append(one)
        return np.stack(found) if len(found) > 1 else found[0][None]

    def run_one(self, image: np.ndarray) -> np.ndarray | None:
        """Returns what the function makes of an image; None if NumPy shall do it.

        Args:
            image: [height, width, channels], in a type that JAX keeps.
        """
        call = self.compiled or self._find(image, 1)
        if call is None:
            return None
        try:
            # A compiled program computes also where JAX traces a function.
            return _take_over(call(image))
        except (jax.errors.JaxRuntimeError, ValueError):
            # There is no memory, or the program has told JAX to refuse transfers, or
            # to compile nothing.
            return None

    def _find(
        self, image: np.ndarray, uses: int
    ) -> Callable[[np.ndarray], jax.Array] | None:
        """Returns the program, which is compiled if it is worth it, or None.

        Args:
            image: an image.
            uses: how many images there are now.
        """
        if self.compiled is not None:
            return self.compiled
        self._uses += uses
        if self._uses <= WORTH or image.size < SMALL:
            return None
        # A function that JAX traces would make the program a part of its own.
        if not jax_traces.is_clean():
            return None
        try:
            return self._compile(image)
        except jax.errors.JaxRuntimeError:  # There is no memory.
            return None

    def _compile(self, image: np.ndarray) -> Callable[[np.ndarray], jax.Array] | None:
        """Returns the program; None if another thread compiles it."""
        device = find_device()
        if device is None or not self._compiling.acquire(blocking=False):
            return None
        try:
            here = jax.sharding.SingleDeviceSharding(device)
            constants = jax.device_put([*self._constants], here)
            program = jax.jit(self._function, in_shardings=here, out_shardings=here)
            compiled = _compile_wide(program.lower(*constants, image))
            self.compiled = found = functools.partial(compiled, *constants)
        finally:
            self._compiling.release()
        return found


def _compile_wide(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Returns a program with the widest vectors of the processor; XLA takes half."""
    options: dict[str, str | bool] = {"xla_cpu_prefer_vector_width": "512"}
    try:
        return lowered.compile(options)
    except jax.errors.JaxRuntimeError:  # Another version of XLA has no such option.
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
