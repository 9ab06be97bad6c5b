"""The code of the processes that Ray starts: a server or a worker, and its calls."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple, final

import jax

from unisono._src.cluster import paused_processes
from unisono._src.foundation import cpu_threads
from unisono._src.servers.carrier import SERVER
from unisono._src.servers.ray import shared_memory
from unisono._src.servers.server import ParameterServer
from unisono._src.servers.worker import Worker

# Options of JAX that change what programs compute. All processes must agree on them.
_SHARED_OPTIONS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
    "jax_default_matmul_precision",
)


@final
class TaskLocation(NamedTuple):
    """Says where a server or worker runs.

    Attributes:
        host: the name of its machine.
        pid: its process.
        machine: see `shared_memory.find_machine`.
    """

    host: str
    pid: int
    machine: str


@final
class Answer(NamedTuple):
    """The result of a call.

    Attributes:
        message: the result; its large arrays are pieces if it is packed.
        is_packed: whether they are in the caller's memory.
        wanted: how many bytes of memory the caller should provide next time.
    """

    message: Any
    is_packed: bool = False
    wanted: int = 0


def read_options() -> dict[str, Any]:
    """Returns options of this process's JAX that servers and workers must share."""
    return {name: getattr(jax.config, name) for name in _SHARED_OPTIONS}


@final
class TaskActor:
    """Keeps a server or a worker in a process of its own; an actor of Ray.

    Ray calls its methods in order, one at a time.

    Args:
        kind: SERVER or WORKER.
        index: which one.
        options: options of JAX.
        threads: how many threads computations get.
        is_on_cpu: whether it must leave accelerators alone.
        stopped_seconds: how long the process may be stopped, as by SIGSTOP, before it
            is killed, and so known to be lost; 0 for any time.
    """

    def __init__(
        self,
        kind: str,
        index: int,
        options: Mapping[str, Any],
        threads: int,
        is_on_cpu: bool,
        stopped_seconds: float,
    ) -> None:
        paused_processes.watch_this_process(stopped_seconds)
        # JAX has not started its backend yet, so this takes effect.
        os.environ.setdefault(cpu_threads.VARIABLE, str(threads))
        for name, value in options.items():
            jax.config.update(name, value)
        if is_on_cpu:
            jax.config.update("jax_platforms", "cpu")
        self._target = ParameterServer(index) if kind == SERVER else Worker(index, [])
        self._mappings = shared_memory.Mappings()

    def where(self, probe: shared_memory.SegmentPlace | None) -> TaskLocation:
        """Returns where this runs.

        Args:
            probe: memory of the caller. If it cannot be seen, no memory is shared.
        """
        machine = shared_memory.find_machine()
        if probe is not None and machine:
            try:
                self._mappings[probe]
            except OSError:
                # Another machine, or a system that does not allow it.
                # A mark that no other process has, so that no memory is shared.
                machine = f"{machine}/{os.getpid()}"
        return TaskLocation(socket.gethostname(), os.getpid(), machine)

    def carry(
        self,
        method: str,
        args: tuple[Any, ...],
        place: shared_memory.SegmentPlace | None,
        reply: shared_memory.SegmentPlace | None,
    ) -> Answer:
        """Calls a method of the server or worker.

        Args:
            method: its name.
            args: its arguments.
            place: the memory with their large arrays; None if `args` has them.
            reply: memory for the large arrays of the result.

        Returns:
            The result.
        """
        if place is not None:
            args = shared_memory.unpack(args, self._mappings[place])
        result = getattr(self._target, method)(*args)
        # The caller learns how much it would need, and offers it with the next call.
        size = shared_memory.measure(result)
        if size == 0 or reply is None or size > reply.size:
            return Answer(result, wanted=size)
        return Answer(shared_memory.pack(result, self._mappings[reply]), is_packed=True)
