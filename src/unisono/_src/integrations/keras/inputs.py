"""Datasets of unisono as input of `fit`, `evaluate` and `predict`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from keras.src.trainers.data_adapters import data_adapter, data_adapter_utils

from unisono._src.foundation import ambient, nest
from unisono._src.input.api import dataset, distributed_dataset, iterators
from unisono._src.input.plan.seeds import Orders
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import distributed

_DATASETS = (dataset.Dataset, distributed_dataset.DistributedDataset)


def bound(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments | None:
    """The arguments of a method by name, with adapters in place of datasets of ours.

    Returns:
        None if they do not fit; the method itself says what is wrong with them.
    """
    try:
        found = inspect.signature(method).bind_partial(None, *args, **kwargs)
    except TypeError:
        return None
    given = found.arguments
    if isinstance(given.get("x"), _DATASETS):
        _check_alone(given)
        given["x"] = DatasetAdapter(given["x"], given.pop("class_weight", None))
    if isinstance(given.get("validation_data"), _DATASETS):
        # As a tuple: Keras takes its first item for the input.
        given["validation_data"] = (DatasetAdapter(given["validation_data"]),)
    return found


def _check_alone(given: dict[str, Any]) -> None:
    for name in ("y", "sample_weight", "batch_size", "validation_split"):
        found = given.get(name)
        if found is not None and not isinstance(found, float | int):
            found = type(found).__name__
        if found:
            raise ValueError(
                f"With a dataset as `x`, `{name}` must not be given, received {found}: "
                "its elements are batches (inputs, targets, sample weights)."
            )


@final
class DatasetAdapter(data_adapter.DataAdapter):
    """Gives Keras the global batches of a dataset.

    Args:
        source: a dataset of global batches, distributed or not.
        class_weight: a weight for each class, by which examples are weighted.
    """

    def __init__(
        self, source: Any, class_weight: dict[int, float] | None = None
    ) -> None:
        strategy = ambient.current().strategy
        is_spread = strategy is not None and _topology(strategy).is_spread
        if is_spread and isinstance(source, dataset.Dataset):
            source = strategy.experimental_distribute_dataset(source)
        self._source = source
        self._class_weight = class_weight
        # Workers that all read everything need not put the parts together again.
        self._reads_whole = is_spread and source._by_data
        self.is_common = not is_spread or self._reads_whole
        size = int(source.cardinality if _is_split(source) else source.cardinality())
        self._size = size if size >= 0 and self.is_common else None

    @functools.cached_property
    def orders(self) -> Orders:
        """What decides in which order the next passes are read."""
        return Orders(getattr(self._source, "_nodes", [self._source._node]))

    def open(self) -> Any:
        """An iterator over one pass, whose position can be saved."""
        if self._reads_whole:
            return iterators.iterate(self._source._node)
        return iter(self._source)

    def batch_of(self, element: Any) -> Any:
        """The global batch of an element of the iterator."""
        return self._weighted(nest.map_structure(self._whole, element))

    def get_jax_iterator(self) -> Iterator[Any]:
        """Global batches: arrays on the devices if they are there, else of NumPy."""
        for element in self.open():
            yield self.batch_of(element)

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Global batches as NumPy arrays."""
        for batch in self.get_jax_iterator():
            yield nest.map_structure(np.asarray, batch)

    def _whole(self, x: Any) -> Any:
        if not isinstance(x, distributed.PerReplica):
            return x if isinstance(x, jax.Array) else np.asarray(x)
        return _joined(x, self._source._topology)

    def _weighted(self, batch: Any) -> Any:
        if self._class_weight is None:
            return batch
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        if weight is not None:
            raise ValueError(
                "The dataset gives sample weights already; `class_weight` cannot be "
                "given as well."
            )
        weight = data_adapter_utils.class_weight_to_sample_weights(
            y, self._class_weight
        )
        return x, y, weight

    @property
    def num_batches(self) -> int | None:
        """How many batches there are, or None if that is not known."""
        return self._size

    @property
    def batch_size(self) -> None:
        """Not known without reading."""

    @property
    def has_partial_batch(self) -> None:
        """Not known without reading."""

    @property
    def partial_batch_size(self) -> None:
        """Not known without reading."""


def _topology(strategy: Any) -> Topology:
    return strategy.extended._placement.topology


def _is_split(source: Any) -> bool:
    return isinstance(source, distributed_dataset.DistributedDataset)


def _joined(x: distributed.PerReplica, topology: Topology) -> Any:
    """The global batch whose parts the replicas have."""
    if topology.is_spread and not x.is_stacked:
        x = x.complete(topology)
    parts = x.values
    sizes = {p.shape for p in parts}
    if len(sizes) > 1:
        return np.concatenate([np.asarray(p) for p in parts])
    (shape,) = sizes
    if topology.is_spread and len(parts) == topology.replicas:
        return np.concatenate([np.asarray(p) for p in parts])
    placed = jax.device_put(list(parts), list(topology.local_devices))
    return jax.make_array_from_single_device_arrays(
        (shape[0] * topology.replicas, *shape[1:]),
        NamedSharding(topology.mesh, PartitionSpec(AXIS)),
        placed,
    )
