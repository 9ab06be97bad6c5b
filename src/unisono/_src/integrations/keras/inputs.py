"""Adapters that give datasets of unisono to `fit`, `evaluate` and `predict`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from unisono._src.foundation import ambient, nest
from unisono._src.foundation.host_numbers import HostArray
from unisono._src.input.api import dataset, distributed_dataset, iterators
from unisono._src.input.loaders import dispatch
from unisono._src.input.plan.seeds import Orders
from unisono._src.integrations.keras import internals
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import distributed

_Dataset = dataset.Dataset | distributed_dataset.DistributedDataset
_DATASETS = (dataset.Dataset, distributed_dataset.DistributedDataset)


@final
class TensorFlowNames:
    """What `adapt` of layers asks of TensorFlow, also where that is not installed.

    Args:
        original: TensorFlow, which Keras loads when it is first used.
    """

    def __init__(self, original: object) -> None:
        self._original = original

    @property
    def data(self) -> TensorFlowNames:
        """Stands for ``tf.data``."""
        return self

    @property
    def Dataset(self) -> tuple[type, ...]:
        """The classes of datasets."""
        loaded = sys.modules.get("tensorflow")
        return (dataset.Dataset, *([loaded.data.Dataset] if loaded else []))

    def is_tensor(self, x: object) -> bool:
        """Return whether a value is a tensor of TensorFlow."""
        loaded = sys.modules.get("tensorflow")
        return loaded is not None and bool(loaded.is_tensor(x))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def wrap_data_layer(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `__call__` of preprocessing layers that converts elements of datasets.

    On TensorFlow Keras converts them to the type in which the layer computes.
    """

    @functools.wraps(original)
    def call(self: keras.layers.Layer, inputs: Any, **kwargs: Any) -> object:
        def convert(x: Any) -> Any:
            is_number = isinstance(x, HostArray) and x.dtype.kind in "biuf"
            return x.astype(self.compute_dtype) if is_number else x

        if ambient.is_in_dataset():
            inputs = keras.tree.map_structure(convert, inputs)
        return original(self, inputs, **kwargs)

    return call


def bind_arguments(
    method: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> inspect.BoundArguments | None:
    """Return the arguments of a method, with adapters in place of unisono's datasets.

    Args:
        method: a loop of Keras, such as `fit`.
        args: its positional arguments, without `self`.
        kwargs: its keyword arguments.

    Returns:
        The arguments by name, or None if they do not match the method's signature; the
        method itself then says what is wrong with them.

    Raises:
        ValueError: arguments were given that cannot go with a dataset.
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
        # Keras unpacks validation data into x, y and weights, but not an adapter.
        given["validation_data"] = (DatasetAdapter(given["validation_data"]),)
    return found


def _check_alone(given: dict[str, Any]) -> None:
    """Raise if arguments were given that a dataset has in its elements."""
    for name in ("y", "sample_weight", "batch_size", "validation_split"):
        found = given.get(name)
        if found is not None and not isinstance(found, float | int):
            found = type(found).__name__
        if found:
            raise ValueError(
                f"With a dataset as `x`, `{name}` must not be given, received {found}: "
                "its elements are batches (inputs, targets, sample weights)."
            )


def wrap_get_data_adapter(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `get_data_adapter` of Keras that takes datasets of unisono, too."""

    @functools.wraps(original)
    def find(x: object, *args: object, **kwargs: object) -> object:
        if not isinstance(x, _DATASETS):
            return original(x, *args, **kwargs)
        given = inspect.signature(original).bind_partial(x, *args, **kwargs).arguments
        # Not the size of batches: Keras passes that of the training data for the
        # validation data as well.
        _check_alone({name: given.get(name) for name in ("y", "sample_weight")})
        return DatasetAdapter(x, given.get("class_weight"))

    return find


@final
class DatasetAdapter(internals.DataAdapter):
    """Gives Keras the global batches of a dataset.

    Args:
        source: a dataset of global batches, distributed or not.
        class_weight: the weight of the examples of each class, or None.

    Attributes:
        is_common: whether all workers read the same batches.
        num_batches: the number of batches, or None if it is not known.
    """

    num_batches: int | None = None
    # The sizes are not known before a batch is read.
    batch_size = has_partial_batch = partial_batch_size = None

    def __init__(
        self, source: _Dataset, class_weight: dict[int, float] | None = None
    ) -> None:
        frame = ambient.current()
        strategy, placement = frame.strategy, frame.placement
        is_spread = placement is not None and placement.topology.is_spread
        if strategy and is_spread and isinstance(source, dataset.Dataset):
            source = strategy.experimental_distribute_dataset(source)
        self._source = source
        self._class_weight = class_weight
        # Workers that all read the whole dataset have the global batch already; they
        # need not join the parts of the replicas.
        self._reading: distributed_dataset.Reading | None = None
        if isinstance(source, distributed_dataset.DistributedDataset):
            self._reading = distributed_dataset.reading_of(source)
            size = int(source.cardinality)
        else:
            size = int(source.cardinality())
        self._reads_whole = (
            is_spread and self._reading is not None and self._reading.is_common
        )
        self.is_common = not is_spread or self._reads_whole
        self.num_batches = size if size >= 0 and self.is_common else None

    @functools.cached_property
    def orders(self) -> Orders:
        """The state of the shuffles, which decides the order of the next passes."""
        plans = (
            self._reading.plans if self._reading else [dispatch.to_node(self._source)]
        )
        return Orders(plans)

    def open(self) -> Any:
        """Return an iterator over one pass, whose position can be saved."""
        if self._reads_whole:
            assert self._reading is not None
            return iterators.iterate(self._reading.whole)
        return iter(self._source)

    def global_batch(self, element: object) -> object:
        """Return the global batch of an element of the iterator of `open`."""
        return self._add_weights(nest.map_structure(self._make_global, element))

    def get_jax_iterator(self) -> Iterator[Any]:
        """Yield global batches, as JAX arrays if they are on the devices already."""
        for element in self.open():
            yield self.global_batch(element)

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Yield global batches as NumPy arrays."""
        for batch in self.get_jax_iterator():
            yield nest.map_structure(np.asarray, batch)

    def _make_global(self, x: object) -> jax.Array | np.ndarray:
        if not isinstance(x, distributed.PerReplica):
            return x if isinstance(x, jax.Array) else np.asarray(x)
        assert self._reading is not None
        return _join(x, self._reading.topology)

    def _add_weights(self, batch: object) -> object:
        if self._class_weight is None:
            return batch
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        if weight is not None:
            raise ValueError(
                "`class_weight` cannot be given with a dataset whose elements have "
                "sample weights already. Leave it out, or multiply the sample weights "
                "of the dataset by it."
            )
        weight = internals.class_weight_to_sample_weights(y, self._class_weight)
        return x, y, weight


def _join(x: distributed.PerReplica, topology: Topology) -> jax.Array | np.ndarray:
    """Return the global batch whose parts the replicas have."""
    if topology.is_spread and not x.is_stacked:
        x = x.complete(topology)
    parts = x.values
    sizes = {p.shape for p in parts}
    if len(sizes) > 1:
        # JAX can split an array over devices into equal parts only.
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
