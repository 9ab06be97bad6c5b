"""`rejection_resample`: changes the shares of classes by dropping elements."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import nodes
from unisono._src.input.stages import (
    argument_checks,
    choose_by_dataset,
    grouping,
    mapping,
)

_log = logging.getLogger("unisono")
# An estimate of the shares begins as if so many elements of each class had been seen,
# and is renewed after so many elements.
_PRIOR = 10
_EVERY = 32
# If more than this share of the elements is dropped, a warning says so.
_LARGE = 0.5


def shares(given: Any, what: str, count: int | None = None) -> np.ndarray:
    """Returns the share of each class, in float32; the sum is 1.

    Raises:
        TypeError: `given` does not consist of numbers.
        ValueError: there is not one number per class, or one is negative.
    """
    found = argument_checks.shares(given, what, "class", count).astype(np.float32)
    if not found.sum() > 0:
        raise ValueError(f"{what} must have a number above 0, received {given!r}.")
    total: np.ndarray = found / found.sum()
    return total


def mixture(initial: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """Returns how to reach the target and drop as few elements as possible.

    Returns:
        The chance of each class to be kept where elements are dropped, and the chance
        of an element to come from the data as it is.

    >>> kept, original = mixture(np.float32([0.8, 0.2]), np.float32([0.5, 0.5]))
    >>> kept.tolist(), float(original)
    ([0.0, 1.0], 0.625)
    """
    # The tiny number keeps a class that never occurs from a division by zero.
    ratio: np.ndarray = target / (initial + np.finfo(np.float32).tiny)
    least, most = ratio.min(), ratio.max()
    if least == most:
        return np.ones_like(ratio), np.float32(1)
    # TensorFlow's solution: as many elements as possible are taken from the data as it
    # is, and only the rest from those that remain after dropping.
    return (ratio - least) / (most - least), least


@final
class Resampler:
    """The functions that the stages of the pipeline call.

    Args:
        class_fn: returns the class of an element.
        target: the share that each class shall have.
    """

    def __init__(self, class_fn: Callable[..., Any], target: np.ndarray) -> None:
        self._class_fn, self._target = class_fn, target

    def pair_with_class(self, *parts: Any) -> tuple[Any, Any]:
        """Returns the class of an element, and the element.

        Raises:
            InvalidArgumentError: there is no such class.
        """
        element = parts[0] if len(parts) == 1 else parts
        given = mapping.call(self._class_fn, element)
        number = grouping.integer_of(given, "class_func")
        if not 0 <= number < self._target.size:
            raise errors.InvalidArgumentError(
                f"class_func gave class {number}, but target_dist has the classes 0 to "
                f"{self._target.size - 1}."
            )
        return given, element

    def initial_counts(self) -> np.ndarray:
        """Returns the counts of the classes before the first element."""
        return np.full(self._target.size, _PRIOR, np.int64)

    def estimate(self, seen: Any, classes: Any) -> tuple[Any, Any]:
        """Returns the counts after some more elements, and shares for the next ones."""
        seen = seen + np.bincount(classes, minlength=self._target.size)
        return seen, np.tile((seen / seen.sum()).astype(np.float32), (_EVERY, 1))

    def accepts(self, initial: Any, chance: Any, pair: Any) -> bool:
        """Whether an element is kept, by a random number."""
        kept, _ = mixture(np.asarray(initial), self._target)
        return bool(chance < kept[pair[0]])

    def choose_source(self, initial: Any, chance: Any) -> np.int64:
        """Returns 0 if an element comes from the data as it is, 1 otherwise."""
        _, original = mixture(np.asarray(initial), self._target)
        return np.int64(chance >= original)

    def warn(self, initial: np.ndarray) -> None:
        """Logs a warning if most elements will be dropped."""
        kept, _ = mixture(initial, self._target)
        dropped = float(((1 - kept) * initial).sum())
        if dropped > _LARGE:
            _log.warning(
                "rejection_resample drops %.0f %% of the elements that it draws to get "
                "from %s to %s.",
                100 * dropped,
                initial.tolist(),
                self._target.tolist(),
            )


def resample(
    dataset: Any,
    class_fn: Callable[..., Any],
    target: Any,
    initial: Any,
    seed: int | None,
) -> nodes.Node:
    """Returns the plan of `Dataset.rejection_resample`."""
    wanted = shares(target, "target_dist")
    seed = argument_checks.seed(seed)
    steps = Resampler(class_fn, wanted)
    original = dataset.map(steps.pair_with_class)
    if initial is not None:
        known = shares(initial, "initial_dist", wanted.size)
        steps.warn(known)
        _, chance = mixture(known, wanted)
        if chance == 1:
            return _plan(original)
        found = dataset.from_tensors(known).repeat()
    else:
        classes = original.map(lambda number, _: number).batch(_EVERY)
        found = classes.scan(steps.initial_counts(), steps.estimate).unbatch()

    # Two streams of random numbers, one to drop elements and one to choose the source.
    def chances(number: int) -> Any:
        drawn = dataset.random(
            None if seed is None else seed + number, rerandomize_each_iteration=True
        )
        return drawn.map(lambda x: np.float32(x / (1 << 32)))

    kept = dataset.zip(found, chances(0), original).filter(steps.accepts)
    kept = kept.map(lambda _, __, pair: pair)
    chosen = dataset.zip(found, chances(1)).map(steps.choose_source)
    # Not `choose_from_datasets`, which would call `class_func` to find the types.
    inputs = (_plan(original), _plan(kept))
    return choose_by_dataset.Choose(inputs, _plan(chosen), True)


def _plan(dataset: Any) -> nodes.Node:
    return argument_checks.plan(dataset, "dataset")
