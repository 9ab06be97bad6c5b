"""`DistributedDataset`: global batches split over the replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src import feeds, nest, values
from unisono._src.input import plan
from unisono._src.topology import Topology


class DistributedDataset(feeds.HostIterable):
    """Yields one part of each global batch per replica.

    Made by `Strategy.experimental_distribute_dataset`. It can be iterated in Python,
    looped over inside a `unisono.function`, and its iterators can be given to one.
    """

    def __init__(self, batches: Iterable[Any], topology: Topology) -> None:
        if not isinstance(batches, Iterable):
            raise TypeError(
                "Expected something to iterate over whose elements are global batches, "
                f"received {type(batches).__name__}."
            )
        self._batches = batches
        self._topology = topology

    def _elements(self) -> Iterator[Any]:
        for batch in self._batches:
            yield split(batch, self._topology)

    def __repr__(self) -> str:
        return f"<DistributedDataset over {self._topology.replicas} replicas>"


def split(batch: Any, topology: Topology) -> Any:
    """Each array of a batch as a value per replica; one replica gets it plain."""
    count = topology.replicas
    if count == 1:
        return nest.map_structure(lambda x: jnp.asarray(values.owned(x)), batch)
    sizes = {np.shape(x)[0] for x in nest.leaves(batch) if np.ndim(x)}
    if any(np.ndim(x) == 0 for x in nest.leaves(batch)) or len(sizes) != 1:
        raise ValueError(
            f"Cannot split a batch over {count} replicas: every array needs the same "
            "size along its first axis, received shapes "
            f"{[np.shape(x) for x in nest.leaves(batch)]}. Batch the dataset first."
        )
    bounds = plan.chunks(sizes.pop(), count)
    return nest.map_structure(lambda x: _split_array(x, bounds, topology), batch)


def _split_array(x: Any, bounds: Any, topology: Topology) -> values.PerReplica:
    if not isinstance(x, jax.Array):
        x = np.array(x, jax.dtypes.canonicalize_dtype(np.asarray(x).dtype))
    sizes = {stop - start for start, stop in bounds}
    if len(sizes) == 1:
        stacked = x.reshape((topology.replicas, sizes.pop(), *x.shape[1:]))
        placed = jax.device_put(stacked, topology.stacked)
        return values.PerReplica.from_stacked(placed, topology.replicas)
    parts = [x[start:stop] for start, stop in bounds]
    placed = jax.device_put(parts, list(topology.devices))
    return values.PerReplica(placed, topology)
