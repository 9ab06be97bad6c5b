"""Programs of XLA for photos in datasets' functions, where NumPy takes much longer.

NumPy reads and writes the whole image at each step of the arithmetic, and moves numbers
one by one where they are not neighbours. To compile a program takes as long as NumPy
takes for a hundred photos, so it is for sizes that come again and again.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import final

import jax
import numpy as np

from unisono._src.foundation import jax_internals
from unisono._src.values import jax_traces

# A program is compiled for a size that has come so many times.
WORTH = 256
# Images of fewer numbers cost NumPy less than the call of a program.
SMALL = 1 << 15
# Read by a CPU of JAX's when it is made: the number of its threads.
_THREADS = "PJRT_NPROC"
_making = threading.Lock()


@final
class _Result:
    """The memory of an array of JAX's for one of NumPy's, which may be changed.

    Args:
        array: the array, which no one else may have.
    """

    def __init__(self, array: jax.Array) -> None:
        # JAX lets NumPy read it only.
        self._view = np.asarray(array)
        told = self._view.__array_interface__
        self.__array_interface__ = {**told, "data": (told["data"][0], False)}


@final
class Program:
    """Computes with images of one size, once there have been enough of them.

    Args:
        function: makes an array of JAX's of the tables and one image.
        tables: returns arrays that are the same for all images.
    """

    def __init__(
        self,
        function: Callable[..., jax.Array],
        tables: Callable[[], Sequence[np.ndarray | np.generic]] = tuple,
    ) -> None:
        self._function, self._make_tables = function, tables
        self._uses = 0
        self._compiled: Callable[[np.ndarray], jax.Array] | None = None
        self._compiling = threading.Lock()

    def run(self, images: np.ndarray) -> np.ndarray | None:
        """Returns what the function makes of each image; None if NumPy shall do it.

        Args:
            images: [images, height, width, channels], in a type that JAX keeps.
        """
        self._uses += len(images)
        if self._uses <= WORTH or images[:1].size < SMALL:
            return None
        # A function that JAX traces would make the program a part of its own.
        if not jax_traces.is_clean():
            return None
        try:
            call = self._compiled or self._compile(images[0])
            if call is None:
                return None
            if len(images) == 1:
                return np.asarray(_Result(call(images[0])))[None]
            return np.stack([np.asarray(call(image)) for image in images])
        except jax.errors.JaxRuntimeError:
            # There is no memory, or the program has told JAX to refuse transfers.
            return None

    def _compile(self, image: np.ndarray) -> Callable[[np.ndarray], jax.Array] | None:
        """Returns the program; None if another thread compiles it."""
        device = find_device()
        if device is None or not self._compiling.acquire(blocking=False):
            return None
        try:
            here = jax.sharding.SingleDeviceSharding(device)
            tables = jax.device_put([*self._make_tables()], here)
            program = jax.jit(self._function, in_shardings=here, out_shardings=here)
            found = functools.partial(program, *tables)
            found(image)
            self._compiled = found
        finally:
            self._compiling.release()
        return found


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
