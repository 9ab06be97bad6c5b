"""What TensorFlow has as functions of ``tf.data.experimental`` too.

Those without a dataset among their arguments give a function for `Dataset.apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from jax.typing import DTypeLike

from unisono._src.execution import specs
from unisono._src.foundation.public_names import publish
from unisono._src.input.api import iterators
from unisono._src.input.api.dataset import Dataset
from unisono._src.input.sources import tfrecord_writer
from unisono._src.input.stages import argument_checks

Apply = Callable[[Dataset], Dataset]


def bucket_by_sequence_length(
    element_length_func: Callable[..., Any],
    bucket_boundaries: Sequence[int],
    bucket_batch_sizes: Sequence[int],
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> Apply:
    """For `Dataset.apply`: `Dataset.bucket_by_sequence_length`."""
    return lambda dataset: dataset.bucket_by_sequence_length(
        element_length_func,
        bucket_boundaries,
        bucket_batch_sizes,
        padded_shapes,
        padding_values,
        pad_to_bucket_boundary,
        no_padding,
        drop_remainder,
    )


def choose_from_datasets(
    datasets: Sequence[Dataset],
    choice_dataset: Dataset,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """`Dataset.choose_from_datasets`, which goes on after a dataset that ended."""
    return Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def Counter(
    start: SupportsIndex = 0, step: SupportsIndex = 1, dtype: DTypeLike = np.int64
) -> Dataset:
    """`Dataset.counter`."""
    return Dataset.counter(start, step, dtype)


def enumerate_dataset(start: SupportsIndex = 0) -> Apply:
    """For `Dataset.apply`: `Dataset.enumerate`."""
    return lambda dataset: dataset.enumerate(start)


def get_next_as_optional(iterator: iterators.PositionedIterator) -> iterators.Optional:
    """The next element of an iterator, as an `Optional`.

    Raises:
        TypeError: it is no iterator over a dataset.
    """
    if not hasattr(iterator, "get_next_as_optional"):
        raise TypeError(
            f"`iterator` must be an iterator over a dataset, received {iterator!r}. "
            "Give iter(dataset)."
        )
    return iterator.get_next_as_optional()


def get_single_element(dataset: Dataset) -> Any:
    """`Dataset.get_single_element`."""
    return dataset.get_single_element()


def group_by_window(
    key_func: Callable[..., Any],
    reduce_func: Callable[[Any, Any], Any],
    window_size: SupportsIndex | None = None,
    window_size_func: Callable[[Any], Any] | None = None,
) -> Apply:
    """For `Dataset.apply`: `Dataset.group_by_window`."""
    return lambda dataset: dataset.group_by_window(
        key_func, reduce_func, window_size, window_size_func
    )


def ignore_errors(log_warning: bool = False) -> Apply:
    """For `Dataset.apply`: `Dataset.ignore_errors`."""
    return lambda dataset: dataset.ignore_errors(log_warning)


def load(
    path: argument_checks.Path,
    element_spec: Any = None,
    compression: str | None = None,
    reader_func: Callable[[Dataset], Dataset] | None = None,
) -> Dataset:
    """`Dataset.load`."""
    return Dataset.load(path, element_spec, compression, reader_func)


def rejection_resample(
    class_func: Callable[..., Any],
    target_dist: Sequence[float] | np.ndarray,
    initial_dist: Sequence[float] | np.ndarray | None = None,
    seed: int | None = None,
) -> Apply:
    """For `Dataset.apply`: `Dataset.rejection_resample`."""
    return lambda dataset: dataset.rejection_resample(
        class_func, target_dist, initial_dist, seed
    )


def sample_from_datasets(
    datasets: Sequence[Dataset],
    weights: Sequence[float] | np.ndarray | Dataset | None = None,
    seed: int | None = None,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """`Dataset.sample_from_datasets`."""
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def save(
    dataset: Dataset,
    path: argument_checks.Path,
    compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
    checkpoint_args: None = None,
) -> None:
    """`Dataset.save`."""
    dataset.save(path, compression, shard_func, checkpoint_args)


def scan(initial_state: Any, scan_func: Callable[..., Any]) -> Apply:
    """For `Dataset.apply`: `Dataset.scan`."""
    return lambda dataset: dataset.scan(initial_state, scan_func)


def take_while(predicate: Callable[..., Any]) -> Apply:
    """For `Dataset.apply`: `Dataset.take_while`."""
    return lambda dataset: dataset.take_while(predicate)


def unbatch() -> Apply:
    """For `Dataset.apply`: `Dataset.unbatch`."""
    return lambda dataset: dataset.unbatch()


def unique() -> Apply:
    """For `Dataset.apply`: `Dataset.unique`."""
    return lambda dataset: dataset.unique()


class TFRecordWriter:
    """Writes a dataset of text to a TFRecord file.

    Args:
        filename: the file; one that is there is replaced.
        compression_type: None, "", "GZIP" or "ZLIB".
    """

    def __init__(
        self, filename: argument_checks.Path, compression_type: str | None = None
    ) -> None:
        self._filename, self._compression = filename, compression_type

    def write(self, dataset: Dataset) -> None:
        """Write each element as a record.

        Raises:
            TypeError: it is no dataset of single texts.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(f"`dataset` must be a `Dataset`, received {dataset!r}.")
        if dataset.element_spec != specs.TensorSpec((), "string"):
            raise TypeError(
                "Elements of `dataset` must be single texts, one for each record; "
                f"those of the given one are {dataset.element_spec}."
            )
        with tfrecord_writer.TFRecordWriter(self._filename, self._compression) as file:
            for record in dataset.as_numpy_iterator():
                file.write(record)


publish(
    "unisono.data.experimental",
    Counter,
    TFRecordWriter,
    bucket_by_sequence_length,
    choose_from_datasets,
    enumerate_dataset,
    get_next_as_optional,
    get_single_element,
    group_by_window,
    ignore_errors,
    load,
    rejection_resample,
    sample_from_datasets,
    save,
    scan,
    take_while,
    unbatch,
    unique,
)
