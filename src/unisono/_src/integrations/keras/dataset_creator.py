"""`DatasetCreator`: the input of `fit` under parameter servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from unisono._src import input as pipelines
from unisono._src.foundation.public_names import publish

if TYPE_CHECKING:
    from unisono._src.input.api.dataset import Dataset
    from unisono._src.input.distribution.input_options import InputContext, InputOptions


@final
class DatasetCreator:
    """Holds a function that creates the dataset of a worker; pass it to `fit`.

    Args:
        dataset_fn: a function of an `InputContext` that returns a dataset. Each worker
            calls it; the dataset should be shuffled, repeated and batched.
        input_options: accepted, no effect.

    Raises:
        TypeError: `dataset_fn` cannot be called.

    >>> import unisono
    >>> creator = DatasetCreator(lambda context: unisono.data.Dataset.range(4).batch(2))
    >>> next(iter(creator(unisono.distribute.InputContext()))).tolist()
    [0, 1]
    """

    def __init__(
        self,
        dataset_fn: Callable[[InputContext], Dataset],
        input_options: InputOptions | None = None,
    ) -> None:
        if not callable(dataset_fn):
            raise TypeError(
                "`dataset_fn` for `DatasetCreator` must be a `callable`. Received: "
                f"{dataset_fn!r}"
            )
        self.dataset_fn = dataset_fn
        self.input_options = input_options

    def __call__(self, input_context: InputContext) -> Dataset:
        """Returns the dataset of a worker."""
        return pipelines.input_options.call_dataset_fn(self.dataset_fn, input_context)


publish("unisono.keras.utils.experimental", DatasetCreator)
