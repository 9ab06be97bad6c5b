"""The functions of a program that make a dataset for one worker, and their context."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from unisono._src.foundation.public_names import publish
from unisono._src.input.stages import argument_checks


class InputContext:
    """Tells a `dataset_fn` for which worker it is called.

    >>> InputContext(2, 1, 8).get_per_replica_batch_size(64)
    8
    >>> import unisono
    >>> def dataset_fn(context):
    ...     size = context.get_per_replica_batch_size(4)
    ...     numbers = unisono.data.Dataset.range(8).batch(size)
    ...     return numbers.shard(context.num_input_pipelines, context.input_pipeline_id)
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> distributed = strategy.distribute_datasets_from_function(dataset_fn)
    >>> value = next(iter(distributed))
    >>> [part.tolist() for part in strategy.experimental_local_results(value)]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        num_input_pipelines: int = 1,
        input_pipeline_id: int = 0,
        num_replicas_in_sync: int = 1,
    ) -> None:
        self._num_input_pipelines = num_input_pipelines
        self._input_pipeline_id = input_pipeline_id
        self._num_replicas_in_sync = num_replicas_in_sync

    @property
    def num_replicas_in_sync(self) -> int:
        """Returns how many replicas compute together, on all workers."""
        return self._num_replicas_in_sync

    @property
    def input_pipeline_id(self) -> int:
        """Returns the number of this pipeline, from 0."""
        return self._input_pipeline_id

    @property
    def num_input_pipelines(self) -> int:
        """Returns how many pipelines there are: one per worker."""
        return self._num_input_pipelines

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns the size of each replica's part of a global batch.

        Raises:
            TypeError: `global_batch_size` is no whole number.
            ValueError: the batch cannot be divided evenly.

        >>> InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(64)
        16
        """
        if global_batch_size is None:
            raise TypeError("global_batch_size must be a whole number, received None.")
        argument_checks.integer(global_batch_size, "global_batch_size")
        if global_batch_size % self._num_replicas_in_sync:
            raise ValueError(
                f"The `global_batch_size` {global_batch_size} is not divisible by "
                f"`num_replicas_in_sync` {self._num_replicas_in_sync}. Choose a "
                "multiple, or let experimental_distribute_dataset split the batches."
            )
        return global_batch_size // self._num_replicas_in_sync

    def __str__(self) -> str:
        return (
            # TensorFlow's text, letter by letter, for programs that print or parse it.
            f"tf.distribute.InputContext(input pipeline id {self._input_pipeline_id}, "
            f"total: {self._num_input_pipelines})"
        )


def call_dataset_fn(
    dataset_fn: Callable[[InputContext], Any], context: InputContext
) -> Any:
    """Calls a `dataset_fn` for a worker and returns its result.

    Raises:
        TypeError: it cannot be called with an `InputContext`.
    """
    wanted = "dataset_fn must be a function that takes an InputContext"
    if not callable(dataset_fn):
        advice = (
            " Give a dataset to experimental_distribute_dataset."
            if hasattr(dataset_fn, "__iter__") and not isinstance(dataset_fn, str)
            else ""
        )
        raise TypeError(
            f"{wanted} and returns a dataset, received {dataset_fn!r}.{advice}"
        )
    try:
        signature = inspect.signature(dataset_fn)
    except (TypeError, ValueError):  # Some functions of C have no signature.
        return dataset_fn(context)
    try:
        signature.bind(context)
    except TypeError as e:
        raise TypeError(
            f"{wanted}; the given one takes {signature}: {e}. Write "
            "`def dataset_fn(context): ...`."
        ) from None
    return dataset_fn(context)


publish("unisono.distribute", InputContext)
