"""Datasets of windows of a series; Keras' own function needs TensorFlow."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.input.api.dataset import Dataset
from unisono._src.input.plan import elements


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "tf",
) -> Dataset:
    """Returns a dataset of windows of a series, as batches.

    Args:
        data: the series, an array or a list whose first axis is time.
        targets: a target for the first step of each window; None for windows alone.
        sequence_length: the number of steps of a window.
        sequence_stride: the distance between the first steps of two windows.
        sampling_rate: the distance between two steps of a window.
        batch_size: the number of windows of a batch; None for single windows.
        shuffle: whether the windows are in a random order.
        seed: the same seed gives the same order in every run.
        start_index: the first step of the series that is used.
        end_index: the step of the series after the last one that is used.
        format: must be "tf", for a dataset of unisono.

    Raises:
        ValueError: an argument is out of range.

    >>> windows = timeseries_dataset_from_array(np.arange(6), None, 3, batch_size=2)
    >>> [batch.tolist() for batch in windows.as_numpy_iterator()]
    [[[0, 1, 2], [1, 2, 3]], [[2, 3, 4], [3, 4, 5]]]
    """
    size = len(data)
    start, end = start_index or 0, end_index or size
    _check("start_index", start, 0, size - 1)
    _check("end_index", end, start + 1, size)
    _check("sampling_rate", sampling_rate, 1, size - 1)
    _check("sequence_stride", sequence_stride, 1, size - 1)
    _check("sequence_length", sequence_length, 1, sys.maxsize)
    if format != "tf":
        raise ValueError(f"`format` must be 'tf'. Received: format={format!r}")
    parts = [data] if targets is None else [data, targets]
    arrays = [elements.as_array(elements.to_array(part))[start:end] for part in parts]
    count = end - start - (sequence_length - 1) * sampling_rate
    if targets is not None:
        count = min(count, len(targets))
    firsts = np.arange(0, max(count, 0), sequence_stride)
    steps = np.arange(sequence_length) * sampling_rate
    if shuffle:
        seed = int(np.random.randint(1_000_000)) if seed is None else seed
        np.random.RandomState(seed).shuffle(firsts)

    def take(first: np.ndarray) -> Any:
        windows = arrays[0][np.asarray(first)[..., None] + steps]
        return windows if targets is None else (windows, arrays[1][first])

    if not len(firsts):
        empty = Dataset.from_tensor_slices(take(firsts))
        return empty if batch_size is None else empty.batch(batch_size)
    dataset = Dataset.from_tensor_slices(firsts)
    if shuffle:
        dataset = dataset.shuffle(8 * batch_size if batch_size else 1024, seed=seed)
    if batch_size is not None:
        # A function of a whole batch is much faster than one of each window.
        dataset = dataset.batch(batch_size)
    return dataset.map(take).prefetch(-1)


def _check(name: str, value: int, least: int, most: int) -> None:
    """Raises `ValueError` unless an argument is in its range."""
    if not least <= value <= most:
        raise ValueError(
            f"`{name}` must be from {least} to {most} for this data. Received: "
            f"{name}={value}"
        )


publish("unisono.keras.utils", timeseries_dataset_from_array)
