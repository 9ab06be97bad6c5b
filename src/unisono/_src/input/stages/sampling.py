"""Takes elements from several datasets, as another dataset says or at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import elements, nodes, seeds
from unisono._src.input.stages import (
    argument_checks,
    choose_by_dataset,
    mapping,
    mixing,
    selecting,
    shuffling,
)


def choose(inputs: Sequence[nodes.Node], choices: nodes.Node, stop: bool) -> nodes.Node:
    """Returns the plan of elements of the inputs whose numbers a dataset gives.

    Raises:
        TypeError: the choices are no whole numbers, or the inputs' elements differ.
    """
    spec = choices.spec
    if elements.is_structure(spec) or spec.shape != () or spec.dtype.kind not in "iu":
        raise TypeError(
            "Elements of `choice_dataset` must be single whole numbers, as of "
            f"Dataset.range; those of the given one are {spec}."
        )
    mixing.check_alike(inputs, "datasets")
    return choose_by_dataset.Choose(tuple(inputs), choices, stop)


@final
class _WeightedDraw:
    """Draws numbers of datasets by their chances; a class, so that it pickles."""

    def __init__(self, chances: np.ndarray) -> None:
        self._chances = chances

    def __call__(self, generator: np.random.Generator, size: int) -> np.ndarray:
        return generator.choice(len(self._chances), size, p=self._chances)

    def __str__(self) -> str:
        return f"chances {self._chances.tolist()}"


def _draw_numbers(generator: np.random.Generator, size: int) -> np.ndarray:
    """Returns random numbers below 2**32."""
    return generator.integers(0, 1 << 32, size)


def _pick(number: Any, weights: Any) -> np.int64:
    """Returns the dataset that a random number below 2**32 means, by these weights.

    >>> int(_pick(1 << 31, np.float32([1, 3]))), int(_pick(1, np.float32([1, 3])))
    (1, 0)
    """
    ends = np.cumsum(weights, dtype=np.float64)
    if not np.isfinite(ends).all() or (weights < 0).any() or not ends[-1] > 0:
        raise errors.InvalidArgumentError(
            "Each element of `weights` must have finite numbers >= 0, at least one of "
            f"them above 0, received {np.asarray(weights).tolist()}."
        )
    place = number / (1 << 32) * ends[-1]
    return np.int64(np.searchsorted(ends, place, side="right"))


def sample(
    inputs: Sequence[nodes.Node], weights: Any, order: seeds.Order, stop: bool
) -> nodes.Node:
    """Returns the plan of elements of inputs that are drawn at random.

    Args:
        inputs: the datasets.
        weights: one number for each, a dataset with such numbers for each draw, or
            None for equal ones.
        order: numbers the passes, and gives their seeds.
        stop: whether the first input that ends is the end.

    Raises:
        TypeError: the weights are no numbers, or the elements of the inputs differ.
        ValueError: there is not one weight from 0 for each input.
    """
    mixing.check_alike(inputs, "datasets")
    if elements.is_dataset(weights):
        plan = argument_checks.plan(weights, "weights")
        _check_weights(plan.spec, len(inputs))
        numbers = shuffling.RandomNumbers(_draw_numbers, order)
        drawn: nodes.Node = mapping.Map(
            mixing.Zip((numbers, plan), (0, 1)), _pick, None
        )
        return choose_by_dataset.Choose(tuple(inputs), drawn, stop)
    if weights is None:
        weights = np.ones(len(inputs))
    chances = argument_checks.shares(weights, "weights", "dataset", len(inputs))
    # Without those that are never drawn: the end comes when all inputs have ended.
    given = [n for n, chance in zip(inputs, chances, strict=True) if chance]
    if not given:
        return selecting.Take(inputs[0], 0)
    drawn = shuffling.RandomNumbers(
        _WeightedDraw(chances[chances > 0] / chances.sum()), order
    )
    return choose_by_dataset.Choose(tuple(given), drawn, stop)


def _check_weights(spec: Any, count: int) -> None:
    """Raises unless elements are arrays of one floating-point number per dataset."""
    if elements.is_structure(spec) or spec.dtype.kind not in "fV":
        raise TypeError(
            "Elements of a dataset of `weights` must be arrays of floating-point "
            f"numbers; those of the given one are {spec}."
        )
    if spec.shape.rank is not None and (
        len(spec.shape) != 1 or spec.shape[0] not in (None, count)
    ):
        raise ValueError(
            f"Elements of a dataset of `weights` must have one number for each of the "
            f"{count} datasets; those of the given one are {spec}."
        )
