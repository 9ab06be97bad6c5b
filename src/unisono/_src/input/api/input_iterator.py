"""The iterator of TensorFlow 1, which a program may start again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from unisono._src.input.api import dataset as datasets
from unisono._src.input.plan import elements


@final
class InputIterator:
    """The steps of a dataset that a strategy has distributed.

    `Strategy.make_dataset_iterator` and `make_input_fn_iterator` make it.

    Args:
        steps: what the strategy has made of the dataset.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> dataset = unisono.data.Dataset.range(4).batch(2)
    >>> iterator = strategy.make_dataset_iterator(dataset)
    >>> len([step for step in iterator])
    2
    >>> iterator.initialize()
    >>> len([step for step in iterator])
    2
    """

    def __init__(self, steps: Iterable[Any]) -> None:
        self._steps = steps
        self._iterator: Any = iter(steps)

    def initialize(self) -> None:
        """Starts again at the first step."""
        self._iterator = iter(self._steps)

    def get_next(self, device: object = None) -> Any:
        """Returns the values of the next step.

        Args:
            device: accepted for compatibility with TensorFlow and ignored.

        Raises:
            OutOfRangeError: there are no more steps.
        """
        return self._iterator.get_next()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)


def as_dataset(made: object) -> object:
    """Returns what an `input_fn` made as a dataset.

    Args:
        made: a dataset or another loader, or a function that gives the next element.

    Raises:
        ValueError: it is neither.
    """
    if elements.is_dataset(made):
        return made
    if callable(made):
        return datasets.Dataset.from_loader(_Calls(made))
    if isinstance(made, Iterable):
        return made
    raise ValueError(
        f"input_fn must return a unisono.data.Dataset or a callable, received {made!r}."
    )


@final
class _Calls:
    """The results of a function that is called again and again."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._function()
