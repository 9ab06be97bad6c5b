"""Programs that travel as bytes: written by one process, compiled by another."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.export


def export(fn: Callable[..., Any], avals: Sequence[Any], name: str) -> bytes:
    """Returns a function of arrays as bytes that any process can compile.

    Args:
        fn: the function; it must not call Python while it runs.
        avals: the shapes and types of its arguments.
        name: what it is called in profiles.
    """
    fn.__name__ = name
    written = jax.export.export(jax.jit(fn), platforms=_platforms())(*avals)
    return bytes(written.serialize())


def _platforms() -> list[str]:
    """Returns the platforms that the processes of a job may compute on."""
    # Servers compute on CPUs; a worker computes where this process would.
    here = jax.default_backend()
    return ["cpu"] if here == "cpu" else ["cpu", "cuda" if here == "gpu" else here]


def digest(*parts: object) -> str:
    """Returns a short text that differs for different data."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else repr(part).encode())
    return found.hexdigest()[:24]


@final
class Compiled:
    """A program of `export`, compiled when it is first called.

    Args:
        data: the bytes of the program.
    """

    def __init__(self, data: bytes) -> None:
        self._jitted = jax.jit(jax.export.deserialize(bytearray(data)).call)
        self._lock = threading.Lock()
        self._is_ready = False

    def __call__(self, *args: object) -> Any:
        """Returns the results of the program for arrays."""
        if self._is_ready:
            return self._jitted(*args)
        # Workers that are threads of one process meet here: one of them compiles.
        with self._lock:
            found = self._jitted(*args)
            self._is_ready = True
        return found


# By content: threads of one process, and closures traced again, share programs.
@functools.lru_cache(maxsize=256)
def load(data: bytes) -> Compiled:
    """Returns the compiled form of a program; the same one for the same bytes."""
    return Compiled(data)
