"""`InputOptions`, and the `InputContext` of functions that make datasets."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from unisono._src.foundation.public_names import publish
from unisono._src.input.stages import argument_checks


class InputReplicationMode(enum.Enum):
    """Whether a `dataset_fn` is called for each worker or for each replica.

    >>> options = InputOptions(
    ...     experimental_replication_mode=InputReplicationMode.PER_REPLICA
    ... )
    >>> options.experimental_replication_mode.value
    'PER_REPLICA'
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


class _InputOptionFields(NamedTuple):
    """The fields of `InputOptions`, which checks them; a tuple as in TensorFlow."""

    experimental_fetch_to_device: bool = True
    experimental_replication_mode: InputReplicationMode = (
        InputReplicationMode.PER_WORKER
    )
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1


class InputOptions(_InputOptionFields):
    """Options for distributing a dataset.

    Attributes:
        experimental_fetch_to_device: whether values are placed on the replicas'
            devices; otherwise they stay on the host as NumPy arrays. None means True.
        experimental_replication_mode: whether a `dataset_fn` is called for each worker
            or for each replica.
        experimental_place_dataset_on_device: in TensorFlow, runs the pipeline on an
            accelerator. unisono always runs it on the host, and places the values as
            usual. If this option is set, `distribute_datasets_from_function` requires
            that the replication mode is PER_REPLICA and that
            `experimental_fetch_to_device` is False.
        experimental_per_replica_buffer_size: how far to read ahead. A thread reads and
            places twice this number of steps in advance, and on accelerators at least
            8 steps if they need at most 128 MB per replica. With 0, each step is read
            when it is needed.

    Raises:
        TypeError: a value has the wrong type.

    >>> import numpy as np
    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> options = InputOptions(experimental_fetch_to_device=False)
    >>> dataset = unisono.data.Dataset.range(4).batch(4)
    >>> distributed = strategy.experimental_distribute_dataset(dataset, options)
    >>> values = strategy.experimental_local_results(next(iter(distributed)))
    >>> [isinstance(value, np.ndarray) for value in values]
    [True, True]
    """

    __slots__ = ()

    def __new__(
        cls,
        experimental_fetch_to_device: bool | None = True,
        experimental_replication_mode: InputReplicationMode = (
            InputReplicationMode.PER_WORKER
        ),
        experimental_place_dataset_on_device: bool = False,
        experimental_per_replica_buffer_size: int = 1,
    ) -> InputOptions:
        """Checks the types and creates the tuple."""
        fetch, size = experimental_fetch_to_device, experimental_per_replica_buffer_size
        if not isinstance(experimental_replication_mode, InputReplicationMode):
            raise TypeError(
                "experimental_replication_mode must be a member of "
                f"InputReplicationMode, received {experimental_replication_mode!r}."
            )
        if isinstance(size, bool) or size is None:
            raise TypeError(
                "experimental_per_replica_buffer_size must be a number of steps, "
                f"received {size}."
            )
        return super().__new__(
            cls,
            fetch is None
            or argument_checks.flag(fetch, "experimental_fetch_to_device"),
            experimental_replication_mode,
            argument_checks.flag(
                experimental_place_dataset_on_device,
                "experimental_place_dataset_on_device",
            ),
            argument_checks.integer(size, "experimental_per_replica_buffer_size"),
        )


def check(options: object) -> InputOptions:
    """Returns the options, or the default ones for None; checked as in TensorFlow.

    Raises:
        TypeError: `options` is no `InputOptions`.
        ValueError: the buffer size is negative.
    """
    if options is None:
        return InputOptions()
    if not isinstance(options, InputOptions):
        raise TypeError(
            "options must be a unisono.distribute.InputOptions, received "
            f"{type(options).__name__}."
        )
    if options.experimental_per_replica_buffer_size < 0:
        raise ValueError(
            "experimental_per_replica_buffer_size must be a number of steps >= 0, "
            f"received {options.experimental_per_replica_buffer_size}."
        )
    return options


def check_place_of_functions(options: InputOptions) -> None:
    """Raises unless datasets that a function makes may run where the options say.

    As in TensorFlow, `experimental_distribute_dataset` does not ask.
    """
    if not options.experimental_place_dataset_on_device:
        return
    if options.experimental_replication_mode is InputReplicationMode.PER_WORKER:
        raise ValueError(
            "When `experimental_place_dataset_on_device` is set for dataset placement, "
            "you must also specify `PER_REPLICA` for the replication mode"
        )
    if options.experimental_fetch_to_device:
        raise ValueError(
            "`experimental_place_dataset_on_device` can not be set to True when "
            "experimental_fetch_to_device is True and replication mode is set to "
            "`PER_REPLICA`"
        )


class InputContext:
    """Describes, for a `dataset_fn`, the worker for which it is called.

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
        """Returns the number of replicas on all workers."""
        return self._num_replicas_in_sync

    @property
    def input_pipeline_id(self) -> int:
        """Returns the index of this pipeline, counted from 0."""
        return self._input_pipeline_id

    @property
    def num_input_pipelines(self) -> int:
        """Returns the number of pipelines; there is one per worker."""
        return self._num_input_pipelines

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns the size of each replica's part of a global batch.

        Raises:
            TypeError: `global_batch_size` is not an integer.
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
