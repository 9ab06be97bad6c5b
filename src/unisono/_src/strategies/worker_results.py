"""Takes one worker's part of the values of a program that several workers run."""

from __future__ import annotations

from typing import Any

from unisono._src.machines.topology import Topology
from unisono._src.state import frames, variables
from unisono._src.values import distributed, jax_tapes, worker_rows


def keep_local(topology: Topology, x: Any) -> Any:
    """Returns what this worker's replicas have of a value, while a program is traced.

    Elsewhere a value is returned as it is: each worker has its own part of it.

    Args:
        topology: the replicas.
        x: any value, of which one that is not distributed is returned as it is.
    """
    if not frames.frame().is_compiled:
        return x
    if isinstance(x, variables.SyncOnReadVariable) and x.state_cell.is_stacked:
        whole = frames.frame().whole(x.state_cell)
        return distributed.PerReplica(worker_rows.own_rows(whole, topology), topology)
    if not isinstance(x, distributed.DistributedValues):
        return x
    return distributed.PerReplica(_own_parts(x, topology), topology)


def _own_parts(x: Any, topology: Topology) -> tuple[Any, ...]:
    """Returns the parts of a distributed value that belong to this worker."""
    if isinstance(x, distributed.PerReplica):
        if x.local is not None:
            return worker_rows.own_values(x.local, topology)
        if x.is_stacked and x.is_traced:
            # By the number of its row each worker would make another program.
            return worker_rows.own_rows(x.stacked(topology), topology)
    parts = tuple(x.values)
    is_whole = len(parts) == topology.replicas
    if isinstance(x, distributed.PerReplica):
        if is_whole and jax_tapes.has_tracer(parts):
            stacked = x.stacked(topology)
            if stacked is not None:
                return worker_rows.own_rows(stacked, topology)
        # Parts of different shapes cannot be rows.
        # Each worker's program takes other parts, so their digests are not compared.
        frames.note_worker_parts()
    return (
        parts[topology.first : topology.first + topology.copies] if is_whole else parts
    )
