"""Takes elements from several datasets, or of several classes, by given shares."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, elements, nodes, seeds
from unisono._src.input.stages import (
    argument_checks,
    grouping,
    mapping,
    mixing,
    selecting,
    shuffling,
)

_log = logging.getLogger("unisono")


@final
class _Chosen(mixing.Parallel):
    """Reads a number, then an element of the source with that number."""

    def __init__(
        self, choices: cursors.Cursor, sources: Sequence[cursors.Cursor], stop: bool
    ) -> None:
        super().__init__([choices, *sources])
        self._stop = stop
        self._ended: set[int] = set()

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not self._is_over():
            choice = self._sources[0].read(1)
            if not len(choice):
                break
            index = int(choice[0])
            if not 0 <= index < len(self._sources) - 1:
                raise errors.InvalidArgumentError(
                    f"choice_dataset gave the number {index}; the datasets have the "
                    f"numbers 0 to {len(self._sources) - 2}."
                )
            # Behind the choices, which are source 0.
            one = self._sources[1 + index].read(1)
            # A source that has ended may be chosen
            # again; with `stop` off, its turn passes.
            if len(one):
                found.append(one[0])
            else:
                self._ended.add(index)
        return found

    def _is_over(self) -> bool:
        wanted = 1 if self._stop else len(self._sources) - 1
        return len(self._ended) >= wanted

    def get_state(self) -> dict[str, Any]:
        return {"ended": sorted(self._ended), **self._positions()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._return_to(state)
        self._ended = set(state["ended"])


@final
class Choose(nodes.Node):
    """Elements from several datasets, in the order that a dataset of numbers gives.

    Attributes:
        inputs: the datasets.
        choices: the number of an input for each element.
        stop: whether the first input that ends is the end.
    """

    inputs: tuple[nodes.Node, ...]
    choices: nodes.Node
    stop: bool
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that follows the choices."""
        sources = [n.cursor() for n in self.inputs]
        return _Chosen(self.choices.cursor(), sources, self.stop)

    def _spec(self) -> elements.Spec:
        return mixing.Concatenate(self.inputs).spec


def choose(inputs: Sequence[nodes.Node], choices: nodes.Node, stop: bool) -> nodes.Node:
    """Returns the plan of elements of the inputs whose numbers a dataset gives.

    Raises:
        TypeError: the choices are no whole numbers, or the inputs' elements differ.
    """
    spec = choices.spec
    if (
        not isinstance(spec, specs.TensorSpec)
        or spec.shape != ()
        or spec.dtype.kind not in "iu"
    ):
        raise TypeError(
            "Elements of `choice_dataset` must be single whole numbers, as of "
            f"Dataset.range; those of the given one are {spec}."
        )
    mixing.check_alike(inputs, "datasets")
    return Choose(tuple(inputs), choices, stop)


@final
class _WeightedDraw:
    """Draws numbers of datasets by their chances; a class, so that it pickles."""

    def __init__(self, chances: np.ndarray) -> None:
        self._chances = chances

    def __call__(self, generator: np.random.Generator, size: int) -> np.ndarray:
        return generator.choice(len(self._chances), size, p=self._chances)

    def __str__(self) -> str:
        return f"chances {self._chances.tolist()}"


def draw_numbers(generator: np.random.Generator, size: int) -> np.ndarray:
    """Returns random numbers below 2**32."""
    return generator.integers(0, 1 << 32, size)


def _pick(number: int, weights: np.ndarray) -> np.int64:
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
    inputs: Sequence[nodes.Node], weights: object, order: seeds.Order, stop: bool
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
        numbers = shuffling.RandomNumbers(draw_numbers, order)
        drawn: nodes.Node = mapping.Map(
            mixing.Zip((numbers, plan), (0, 1)), _pick, None
        )
        return Choose(tuple(inputs), drawn, stop)
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
    return Choose(tuple(given), drawn, stop)


def _check_weights(spec: elements.Spec, count: int) -> None:
    """Raises unless elements are arrays of one floating-point number per dataset."""
    if not isinstance(spec, specs.TensorSpec) or spec.dtype.kind not in "fV":
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


# An estimate of the shares begins as if so many elements of each class had been seen,
# and is renewed after so many elements.
_PRIOR = 10
_EVERY = 32
# If more than this share of the elements is dropped, a warning says so.
_LARGE = 0.5


def shares(given: object, what: str, count: int | None = None) -> np.ndarray:
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

    def pair_with_class(self, *parts: object) -> tuple[Any, Any]:
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

    def estimate(
        self, seen: np.ndarray, classes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the counts after some more elements, and shares for the next ones."""
        seen = seen + np.bincount(classes, minlength=self._target.size)
        return seen, np.tile((seen / seen.sum()).astype(np.float32), (_EVERY, 1))

    def accepts(
        self, initial: np.ndarray, chance: np.ndarray, pair: tuple[int, object]
    ) -> bool:
        """Whether an element is kept, by a random number."""
        kept, _ = mixture(np.asarray(initial), self._target)
        return bool(chance < kept[pair[0]])

    def choose_source(self, initial: np.ndarray, chance: np.ndarray) -> np.int64:
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
    seed = argument_checks.seed(seed, "seed")
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
    def chances(number: int) -> object:
        drawn = dataset.random(None if seed is None else seed + number)
        return drawn.map(lambda x: np.float32(x / (1 << 32)))

    kept = dataset.zip(found, chances(0), original).filter(steps.accepts)
    kept = kept.map(lambda _, __, pair: pair)
    chosen = dataset.zip(found, chances(1)).map(steps.choose_source)
    # Not `choose_from_datasets`, which would call `class_func` to find the types.
    inputs = (_plan(original), _plan(kept))
    return Choose(inputs, _plan(chosen), True)


def _plan(dataset: object) -> nodes.Node:
    return argument_checks.plan(dataset, "dataset")
