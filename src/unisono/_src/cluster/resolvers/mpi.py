"""Finds the cluster of a program started by ``mpirun``."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.cluster.resolvers import base

# Rank, size, and processes on this machine: Open MPI; MPICH and Intel MPI; MVAPICH.
_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
)
_HOST_BYTES = 256


def is_in_mpi() -> bool:
    """Whether the environment looks as if ``mpirun`` had started this process."""
    return any(
        rank in os.environ and size in os.environ for rank, size, _ in _VARIABLES
    )


class MPIClusterResolver(base.ClusterResolver):
    """Reads rank and size from MPI; every process is a ``worker``.

    Rank and size come from the variables that ``mpirun`` sets. They do not say on which
    host each rank runs. You can pass the hosts as `hosts`. Otherwise, if MPI says that
    all ranks run on this machine, the resolver uses this machine. If not, it asks MPI
    for the hosts, through `comm` or through mpi4py, if it is installed.

    >>> import os, unittest.mock
    >>> told = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    >>> with unittest.mock.patch.dict(os.environ, told):
    ...     resolver = MPIClusterResolver(hosts=["node-a", "node-b"])
    >>> resolver.task_id, resolver.master()
    (1, 'node-b:8888')

    Args:
        hosts: the host of each rank, in order.
        port_base: the first port on each host.
        comm: a communicator of mpi4py; by default its COMM_WORLD, if it is needed.
        rpc_layer: the protocol that `master` puts in front of addresses.

    Raises:
        RuntimeError: this process was not started by MPI, or nothing says which hosts
            take part.
        TypeError: `hosts` is not a sequence of names.
        ValueError: a variable of MPI is malformed, or `hosts` has the wrong length.
    """

    def __init__(
        self,
        hosts: Sequence[str] | None = None,
        port_base: int = 8888,
        comm: Any = None,
        rpc_layer: str | None = None,
    ) -> None:
        if comm is None:
            rank, size, local = self._read_environment()
        else:
            rank, size, local = comm.Get_rank(), comm.Get_size(), None
            self._source = "the communicator"
        if hosts is not None:
            names = _check_hosts(hosts)
        elif comm is None and local == size:
            names = ["localhost"] * size
        else:
            names = _gather_hosts(_find_world() if comm is None else comm)
        if len(names) != size:
            raise ValueError(
                f"MPI has {size} ranks, but {len(names)} hosts are named; name one "
                "host for each rank, in order, also where ranks share a host."
            )
        first = untrusted.port("port_base", port_base)
        self._addresses = _make_addresses(names, first)
        self._task_type, self._task_id = "worker", rank
        self._rpc_layer = rpc_layer

    def _read_environment(self) -> tuple[int, int, int | None]:
        for rank, size, local in _VARIABLES:
            if rank in os.environ and size in os.environ:
                self._source = f"{rank} and {size}"
                most = untrusted.MAX_TASKS
                total = untrusted.whole_number(size, os.environ[size], 1, most)
                own = untrusted.whole_number(rank, os.environ[rank], 0, total - 1)
                if local not in os.environ:
                    return own, total, None
                here = untrusted.whole_number(local, os.environ[local], 1, total)
                return own, total, here
        raise RuntimeError(
            "None of "
            + ", ".join(rank for rank, _, _ in _VARIABLES)
            + " is set. Not started by mpirun? Pass comm=MPI.COMM_WORLD of mpi4py, or "
            "use another resolver."
        )

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns a cluster with one worker for each rank."""
        return cluster_tasks.ClusterSpec({"worker": self._addresses})

    def _sources(self) -> dict[str, str]:
        return {"": self._source, "rpc_layer": base.CONSTRUCTOR}


def _check_hosts(hosts: Iterable[str]) -> list[str]:
    try:
        # Iterated, one name would be a list of letters.
        if not isinstance(hosts, str | bytes):
            return list(hosts)
    except TypeError:
        pass  # An object that cannot be iterated, such as an array without axes.
    raise TypeError(
        "hosts must be a list with the host of each rank, such as ['a', 'b']; received "
        f"{untrusted.excerpt(hosts)}."
    )


def _find_world() -> Any:
    try:
        import mpi4py.MPI
    except ImportError:
        raise RuntimeError(
            "MPI's variables do not say which hosts take part. Install mpi4py, or pass "
            "hosts=[...], the host of each rank."
        ) from None
    return mpi4py.MPI.COMM_WORLD


def _gather_hosts(comm: Any) -> list[str]:
    """Returns every rank's host name.

    The names travel in buffers of a fixed size, because mpi4py would pickle objects.
    """
    mine = bytearray(_HOST_BYTES)
    name = socket.gethostname().encode()[: _HOST_BYTES - 1]
    mine[: len(name)] = name
    everyone = bytearray(_HOST_BYTES * comm.Get_size())
    comm.Allgather(mine, everyone)
    parts = [
        everyone[i : i + _HOST_BYTES] for i in range(0, len(everyone), _HOST_BYTES)
    ]
    return [bytes(p).rstrip(b"\0").decode("ascii", "replace") for p in parts]


def _make_addresses(hosts: list[str], port_base: int) -> list[str]:
    used: dict[str, int] = {}
    addresses = []
    for rank, name in enumerate(hosts):
        host = untrusted.host(f"The host of rank {rank}", name)
        place = used.get(host, 0)
        used[host] = place + 1
        port = untrusted.port(f"The port of rank {rank}", port_base + place)
        addresses.append(f"{host}:{port}")
    return addresses
