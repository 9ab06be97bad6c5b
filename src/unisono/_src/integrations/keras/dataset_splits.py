"""Datasets split in two; Keras' own function needs TensorFlow."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.input.api.dataset import Dataset
from unisono._src.input.plan import elements, nodes
from unisono._src.input.stages import argument_checks, batching, mapping

# A number of examples, a fraction of all, or what the other part leaves.
_Size = int | float | None


def split_dataset(
    dataset: Any,
    left_size: int | float | None = None,
    right_size: int | float | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> Any:
    """Returns the first and the last examples of a dataset, as two datasets.

    All examples are read and kept in memory. A dataset that ends with `batch` is split
    by examples, and both parts have batches of its size.

    Args:
        dataset: a dataset, an array, or a list or tuple of arrays of one length. Keras
            splits datasets of PyTorch.
        left_size: how many examples the first part has: a number, a fraction from 0 to
            1, or None for what the second part leaves.
        right_size: the same for the second part.
        shuffle: whether the examples are put in a random order before the split. The
            parts are not shuffled again.
        seed: the same seed gives the same parts in every run.
        preferred_backend: "torch" for datasets of PyTorch.

    Raises:
        TypeError: the dataset or a size has another type.
        ValueError: there are no examples, a part would have none, or both would have
            more than all.

    >>> train, test = split_dataset(Dataset.range(5), left_size=0.6)
    >>> [int(x) for x in train], [int(x) for x in test]
    ([0, 1, 2], [3, 4])
    """
    is_known = isinstance(dataset, (Dataset, np.ndarray, list, tuple))
    if preferred_backend == "torch" or not is_known:
        return keras.utils.split_dataset(
            dataset, left_size, right_size, shuffle, seed, preferred_backend
        )
    if left_size is None and right_size is None:
        raise ValueError(
            "At least one of the `left_size` or `right_size` must be specified. "
            "Received: left_size=None and right_size=None"
        )
    whole, batch_size = _read(dataset)
    count = len(next(iter(elements.leaves(whole))))
    left, right = _find_sizes(left_size, right_size, count)
    order = list(range(count))
    if shuffle:
        random.Random(seed).shuffle(order)

    def take(chosen: list[int]) -> Dataset:
        part = elements.map_leaves(lambda x: np.asarray(x)[chosen], whole)
        made = Dataset.from_tensor_slices(part)
        made = made if batch_size is None else made.batch(batch_size)
        return made.prefetch(mapping.AUTOTUNE)

    return take(order[:left]), take(order[count - right :])


def _read(dataset: Any) -> tuple[Any, int | None]:
    """Returns all examples as one batch, and the size of the dataset's own batches.

    Raises:
        TypeError: a list has other things than arrays.
        ValueError: there are no examples, no end of them, or arrays differ in length.
    """
    if isinstance(dataset, Dataset):
        return _read_all(dataset)
    if isinstance(dataset, np.ndarray):
        _check_arrays([dataset])
        return dataset, None
    _check_arrays(dataset)
    return tuple(dataset), None


def _read_all(dataset: Dataset) -> tuple[Any, int | None]:
    node = argument_checks.plan(dataset, "dataset")
    size = node.size if isinstance(node, batching.Batch) else None
    if int(dataset.cardinality()) == nodes.INFINITE:
        raise ValueError(
            "split_dataset reads all examples, and this dataset has no end. Split it "
            "before repeat()."
        )
    examples = dataset if size is None else dataset.unbatch()
    for whole in examples.batch(sys.maxsize).as_numpy_iterator():
        return whole, size
    raise ValueError("Received an empty dataset. It must have two examples at least.")


def _check_arrays(given: Sequence[Any]) -> None:
    for number, array in enumerate(given):
        if not isinstance(array, np.ndarray) or not array.ndim:
            raise TypeError(
                "Expected a list of `numpy.ndarray` objects with an axis of examples. "
                f"Received: {type(array)} at index {number}."
            )
    lengths = [len(array) for array in given]
    if len({*lengths}) != 1 or not lengths[0]:
        raise ValueError(
            "Expected NumPy arrays of the same length, which is not 0. Received "
            f"lengths: {lengths}."
        )


def _find_sizes(left: _Size, right: _Size, count: int) -> tuple[int, int]:
    """Returns how many examples both parts have."""
    for name, size in (("left_size", left), ("right_size", right)):
        if size is None:
            continue
        if type(size) not in (int, float):
            raise TypeError(
                f"Invalid `{name}` Type. Expected: int or float or None, Received: "
                f"type({name})={type(size)}."
            )
        if not 0 < size < (1 if isinstance(size, float) else count):
            raise ValueError(
                f"`{name}` should be either a positive integer smaller than {count}, "
                f"or a float within the range `[0, 1]`. Received: {name}={size}"
            )
    if isinstance(left, float) and isinstance(right, float) and left + right > 1:
        raise ValueError(
            "The sum of `left_size` and `right_size` is greater than 1. It must be "
            "less than or equal to 1."
        )
    first, last = (
        round(x * count) if isinstance(x, float) else x for x in (left, right)
    )
    first = count - last if first is None and last is not None else first
    last = count - first if last is None and first is not None else last
    assert first is not None and last is not None
    if first + last > count:
        raise ValueError(
            f"The sum of `left_size` and `right_size` should be at most {count}. "
            f"Received: left_size + right_size = {first + last}"
        )
    if not first or not last:
        raise ValueError(
            f"With `dataset` of length={count}, `left_size`={first} and `right_size`="
            f"{last}, one of the parts has no examples."
        )
    return first, last


publish("unisono.keras.utils", split_dataset)
