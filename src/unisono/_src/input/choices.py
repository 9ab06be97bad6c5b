"""Options of datasets and of distributing them, with TensorFlow's names and checks."""

from __future__ import annotations

import enum
from typing import Any, ClassVar, NamedTuple


class AutoShardPolicy(enum.IntEnum):
    """How a dataset is shared out among workers."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class ExternalStatePolicy(enum.Enum):
    """What to do about state outside of a dataset; accepted for TensorFlow's sake."""

    WARN = 0
    IGNORE = 1
    FAIL = 2


class InputReplicationMode(enum.Enum):
    """For whom a `dataset_fn` is called: each worker, or each replica."""

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


class InputOptions(NamedTuple):
    """How a distributed dataset is placed.

    Attributes:
        experimental_fetch_to_device: whether values are put on the replicas' devices;
            else they stay on the host as NumPy arrays.
        experimental_replication_mode: for whom a `dataset_fn` is called.
        experimental_place_dataset_on_device: TensorFlow can run a pipeline on an
            accelerator; it needs the two options above to be PER_REPLICA and False.
            Pipelines run on the host here, and the values are placed as usual.
        experimental_per_replica_buffer_size: how many steps ahead values are placed,
            and as many more are made; 0 makes each when it is asked for.
    """

    experimental_fetch_to_device: bool = True
    experimental_replication_mode: InputReplicationMode = (
        InputReplicationMode.PER_WORKER
    )
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1


class InputContext:
    """What a `dataset_fn` is told about the worker that it is called for.

    >>> InputContext(2, 1, 8).get_per_replica_batch_size(64)
    8
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
        """How many replicas compute together, over all workers."""
        return self._num_replicas_in_sync

    @property
    def input_pipeline_id(self) -> int:
        """Which of the pipelines this one is, from 0."""
        return self._input_pipeline_id

    @property
    def num_input_pipelines(self) -> int:
        """How many pipelines there are: one per worker."""
        return self._num_input_pipelines

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The part of a global batch that each replica gets.

        Raises:
            ValueError: the batch cannot be divided evenly.
        """
        if global_batch_size % self._num_replicas_in_sync:
            raise ValueError(
                f"The `global_batch_size` {global_batch_size} is not divisible by "
                f"`num_replicas_in_sync` {self._num_replicas_in_sync}. Choose a "
                "multiple, or let experimental_distribute_dataset split the batches."
            )
        return global_batch_size // self._num_replicas_in_sync

    def __str__(self) -> str:
        return (
            f"tf.distribute.InputContext(input pipeline id {self._input_pipeline_id}, "
            f"total: {self._num_input_pipelines})"
        )


class _Record:
    """Attributes with a fixed set of names and defaults; abstract."""

    _fields: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        object.__setattr__(self, "_given", {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._given.get(name, self._fields[name])
        except KeyError:
            raise AttributeError(self._unknown(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            raise AttributeError(self._unknown(name))
        self._given[name] = self._checked(name, value)

    def _unknown(self, name: str) -> str:
        known = ", ".join(sorted(self._fields))
        return (
            f"Cannot set the property {name} on {type(self).__name__}; it has {known}."
        )

    def _checked(self, name: str, value: Any) -> Any:
        return value

    def merged(self, other: Any) -> Any:
        """A copy in which what was set on `other` wins."""
        made = type(self)()
        made._given.update(self._given)
        for name, value in other._given.items():
            if isinstance(value, _Record):
                # A copy, also where there is nothing to merge it with.
                value = (made._given.get(name) or type(value)()).merged(value)
            made._given[name] = value
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Record):
            return NotImplemented
        return type(self) is type(other) and self._given == other._given

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self._given.items())
        return f"{type(self).__name__}({shown})"


class DistributeOptions(_Record):
    """How a dataset is shared out among workers.

    >>> options = DistributeOptions()
    >>> options.auto_shard_policy = AutoShardPolicy.OFF
    >>> options
    DistributeOptions(auto_shard_policy=<AutoShardPolicy.OFF: -1>)
    """

    _fields: ClassVar[dict[str, Any]] = {
        "auto_shard_policy": AutoShardPolicy.AUTO,
        "auto_shard": True,
        "num_devices": None,
    }

    def _checked(self, name: str, value: Any) -> Any:
        if name == "auto_shard_policy":
            if not isinstance(value, AutoShardPolicy):
                raise TypeError(
                    "The auto_shard_policy must be a member of AutoShardPolicy, "
                    f"received {value!r}."
                )
        elif name == "auto_shard":
            # The name of TensorFlow 2.0: sharding was on or off.
            policy = AutoShardPolicy.AUTO if value else AutoShardPolicy.OFF
            self._given["auto_shard_policy"] = policy
        return value


class ThreadingOptions(_Record):
    """Accepted for TensorFlow's sake; `map` takes the number of its threads itself."""

    _fields: ClassVar[dict[str, Any]] = {
        "max_intra_op_parallelism": None,
        "private_threadpool_size": None,
    }


class AutotuneOptions(_Record):
    """Accepted for TensorFlow's sake."""

    _fields: ClassVar[dict[str, Any]] = {
        "autotune_algorithm": None,
        "cpu_budget": None,
        "enabled": None,
        "initial_parallelism": None,
        "min_parallelism": None,
        "ram_budget": None,
    }


class OptimizationOptions(_Record):
    """Accepted for TensorFlow's sake: plans here need no rewriting to be fast."""

    _fields: ClassVar[dict[str, Any]] = dict.fromkeys(
        (
            "apply_default_optimizations",
            "filter_fusion",
            "filter_parallelization",
            "inject_prefetch",
            "map_and_batch_fusion",
            "map_and_filter_fusion",
            "map_fusion",
            "map_parallelization",
            "noop_elimination",
            "parallel_batch",
            "seq_interleave_prefetch",
            "shuffle_and_repeat_fusion",
        )
    )


class Options(_Record):
    """What `Dataset.with_options` takes.

    Attributes:
        experimental_distribute: how the dataset is shared out among workers.
        worker_processes: maps with `num_parallel_calls` run in so many of Grain's
            worker processes instead of threads; for functions that are heavy and keep
            Python busy. The processes are started anew, so a script needs the usual
            ``if __name__ == "__main__"``. Not in TensorFlow.
    """

    _fields: ClassVar[dict[str, Any]] = {
        "autotune": AutotuneOptions,
        "dataset_name": None,
        "deterministic": None,
        "experimental_deterministic": None,
        "experimental_distribute": DistributeOptions,
        "experimental_external_state_policy": None,
        "experimental_optimization": OptimizationOptions,
        "experimental_slack": None,
        "experimental_symbolic_checkpoint": None,
        "experimental_threading": ThreadingOptions,
        "experimental_warm_start": None,
        "framework_type": None,
        "threading": ThreadingOptions,
        "worker_processes": 0,
    }

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        if isinstance(value, type):
            value = self._given[name] = value()
        return value

    def _checked(self, name: str, value: Any) -> Any:
        if name == "worker_processes" and (not isinstance(value, int) or value < 0):
            raise ValueError(
                f"worker_processes must be a number of processes, received {value!r}."
            )
        return value
