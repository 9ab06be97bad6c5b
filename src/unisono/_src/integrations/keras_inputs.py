"""Datasets of unisono as input of `fit`, `evaluate` and `predict`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from keras.src.trainers.data_adapters import data_adapter, data_adapter_utils

from unisono._src import nest, values
from unisono._src.input import dataset, distributed
from unisono._src.topology import AXIS, Topology

_DATASETS = (dataset.Dataset, distributed.DistributedDataset)


def adapted(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a method with an adapter in place of each dataset of ours."""
    try:
        bound = inspect.signature(method).bind_partial(None, *args, **kwargs)
    except TypeError:
        return args, kwargs  # The method itself says what is wrong with them.
    given = bound.arguments
    if isinstance(given.get("x"), _DATASETS):
        _check_alone(given)
        given["x"] = DatasetAdapter(given["x"], given.pop("class_weight", None))
    if isinstance(given.get("validation_data"), _DATASETS):
        # As a tuple: Keras takes its first item for the input.
        given["validation_data"] = (DatasetAdapter(given["validation_data"]),)
    return bound.args[1:], bound.kwargs


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


class DatasetAdapter(data_adapter.DataAdapter):
    """Gives Keras the global batches of a dataset.

    Args:
        source: a dataset of global batches, distributed or not.
        class_weight: a weight for each class, by which examples are weighted.
    """

    def __init__(
        self, source: Any, class_weight: dict[int, float] | None = None
    ) -> None:
        self._source = source
        self._class_weight = class_weight
        size = int(source.cardinality if _is_split(source) else source.cardinality())
        self._size = size if size >= 0 else None

    def get_jax_iterator(self) -> Iterator[Any]:
        """Global batches: arrays on the devices if they are there, else of NumPy."""
        for element in self._source:
            yield self._weighted(nest.map_structure(self._whole, element))

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Global batches as NumPy arrays."""
        for batch in self.get_jax_iterator():
            yield nest.map_structure(np.asarray, batch)

    def _whole(self, x: Any) -> Any:
        if not isinstance(x, values.PerReplica):
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


def _is_split(source: Any) -> bool:
    return isinstance(source, distributed.DistributedDataset)


def _joined(x: values.PerReplica, topology: Topology) -> Any:
    """The global batch whose parts the replicas have."""
    parts = x.values
    sizes = {p.shape for p in parts}
    if len(sizes) > 1:
        return np.concatenate([np.asarray(p) for p in parts])
    (shape,) = sizes
    placed = jax.device_put(list(parts), list(topology.devices))
    return jax.make_array_from_single_device_arrays(
        (shape[0] * len(parts), *shape[1:]),
        NamedSharding(topology.mesh, PartitionSpec(AXIS)),
        placed,
    )
