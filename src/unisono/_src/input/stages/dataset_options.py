"""Options of datasets and of distributing them, with TensorFlow's names and checks."""

from __future__ import annotations

import abc
import enum
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from unisono._src.foundation.public_names import publish
from unisono._src.input.stages import argument_checks


class AutoShardPolicy(enum.IntEnum):
    """How the elements of a dataset are divided among workers.

    OFF lets every worker read everything, FILE divides the files and DATA the elements.
    AUTO means FILE if the dataset reads files, and DATA otherwise. HINT divides where
    `shard(SHARD_HINT, SHARD_HINT)` stands.

    >>> options = Options()
    >>> options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    >>> options.experimental_distribute.auto_shard_policy.name
    'DATA'
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class AutotuneAlgorithm(enum.Enum):
    """TensorFlow's tuning algorithms; accepted for compatibility and ignored.

    >>> options = Options()
    >>> options.autotune.autotune_algorithm = AutotuneAlgorithm.HILL_CLIMB
    >>> options.autotune.autotune_algorithm.name
    'HILL_CLIMB'
    """

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


class ExternalStatePolicy(enum.Enum):
    """How TensorFlow treats state outside of a dataset; accepted and ignored.

    >>> options = Options()
    >>> options.experimental_external_state_policy = ExternalStatePolicy.IGNORE
    >>> options.experimental_external_state_policy.name
    'IGNORE'
    """

    WARN = 0
    IGNORE = 1
    FAIL = 2


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
        experimental_fetch_to_device: whether values are put on the replicas' devices;
            otherwise they stay on the host as NumPy arrays. None means True.
        experimental_replication_mode: whether a `dataset_fn` is called for each worker
            or for each replica.
        experimental_place_dataset_on_device: TensorFlow can run a pipeline on an
            accelerator. Pipelines run on the host here, and the values are placed as
            usual. `distribute_datasets_from_function` wants the two options above to
            be PER_REPLICA and False with it.
        experimental_per_replica_buffer_size: how many steps ahead values are placed on
            the devices; as many more wait on the host. 0 makes each step when it is
            asked for.

    Raises:
        TypeError: a value has another type.

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
        """Checks the types and makes the tuple."""
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


# Abstract without an abstract method: subclasses differ only in their tables.
class _OptionRecord(abc.ABC):  # noqa: B024
    """An object with a fixed set of typed attributes; abstract.

    Attributes of the class:
        _types: the type of each attribute.
        _defaults: the defaults that are not None.
        _aliases: older names of attributes.
        _checks: functions that are called with the object and a new value.
    """

    _types: ClassVar[Mapping[str, type]] = {}
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _aliases: ClassVar[Mapping[str, str]] = {}
    _checks: ClassVar[Mapping[str, Callable[[Any, Any], None]]] = {}

    def __init__(self) -> None:
        # Holds only what was set, so that a merge knows what wins. Not by assignment:
        # `__setattr__` accepts the names of options only.
        object.__setattr__(self, "_given", {})

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` look for special methods before there is `_given`.
        if name.startswith("__"):
            raise AttributeError(name)
        name = self._aliases.get(name, name)
        kind = self._kind(name)
        if issubclass(kind, _OptionRecord) and name not in self._given:
            self._given[name] = kind()
        return self._given.get(name, self._defaults.get(name))

    def __setattr__(self, name: str, value: Any) -> None:
        name = self._aliases.get(name, name)
        kind = self._kind(name)
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} of {type(self).__name__} must be of type {kind.__name__}, "
                f"received {value!r}."
            )
        if name in self._checks:
            self._checks[name](self, value)
        self._given[name] = value

    def _kind(self, name: str) -> type:
        try:
            return self._types[name]
        except KeyError:
            raise AttributeError(self._unknown_name_message(name)) from None

    def _unknown_name_message(self, name: str) -> str:
        known = ", ".join(sorted({*self._types, *self._aliases}))
        return (
            f"Cannot set the property {name} on {type(self).__name__}; it has {known}."
        )

    def merged(self, other: Self) -> Self:
        """Returns a copy in which the values that were set on `other` win."""
        made = type(self)()
        values = _values_of(made)
        for name, value in (*self._given.items(), *_values_of(other).items()):
            if isinstance(value, _OptionRecord):
                # A copy, even where there is nothing to merge it with: the user may
                # go on changing the original.
                value = (values.get(name) or type(value)()).merged(value)
            # Not `setattr`, which would let an old `auto_shard` override a newer
            # `auto_shard_policy`.
            values[name] = value
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _OptionRecord):
            return NotImplemented
        return type(self) is type(other) and self._given == other._given

    # Options can change, so they have no hash; the type of `object` has one.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self._given.items())
        return f"{type(self).__name__}({shown})"


def _values_of(record: _OptionRecord) -> dict[str, Any]:
    """Returns the values that were set on a record, by name."""
    values: dict[str, Any] = vars(record)["_given"]
    return values


def _set_policy(options: DistributeOptions, value: bool) -> None:
    # `auto_shard` is the option of TensorFlow 2.0, where sharding was on or off.
    policy = AutoShardPolicy.AUTO if value else AutoShardPolicy.OFF
    options.auto_shard_policy = policy


class DistributeOptions(_OptionRecord):
    """Options for dividing a dataset among workers.

    >>> options = DistributeOptions()
    >>> options.auto_shard_policy = AutoShardPolicy.OFF
    >>> options
    DistributeOptions(auto_shard_policy=<AutoShardPolicy.OFF: -1>)
    """

    auto_shard_policy: AutoShardPolicy
    num_devices: int | None
    _types: ClassVar[Mapping[str, type]] = {
        "auto_shard_policy": AutoShardPolicy,
        "auto_shard": bool,
        "num_devices": int,
    }
    _defaults: ClassVar[Mapping[str, Any]] = {
        "auto_shard_policy": AutoShardPolicy.AUTO,
        "auto_shard": True,
    }
    _checks: ClassVar[Mapping[str, Callable[[Any, Any], None]]] = {
        "auto_shard": _set_policy
    }


class ThreadingOptions(_OptionRecord):
    """Accepted for compatibility and ignored: `map` takes a number of threads.

    >>> options = Options()
    >>> options.threading.private_threadpool_size = 4
    >>> options.threading
    ThreadingOptions(private_threadpool_size=4)
    """

    max_intra_op_parallelism: int | None
    private_threadpool_size: int | None
    _types: ClassVar[Mapping[str, type]] = {
        "max_intra_op_parallelism": int,
        "private_threadpool_size": int,
    }


class AutotuneOptions(_OptionRecord):
    """Accepted for compatibility with TensorFlow and ignored.

    >>> options = Options()
    >>> options.autotune.cpu_budget = 8
    >>> options.autotune
    AutotuneOptions(cpu_budget=8)
    """

    _types: ClassVar[Mapping[str, type]] = {
        "autotune_algorithm": AutotuneAlgorithm,
        "cpu_budget": int,
        "enabled": bool,
        "initial_parallelism": int,
        "min_parallelism": int,
        "ram_budget": int,
    }


class OptimizationOptions(_OptionRecord):
    """Accepted for compatibility and ignored: plans need no rewriting to be fast.

    >>> options = Options()
    >>> options.experimental_optimization.map_fusion = True
    >>> options.experimental_optimization
    OptimizationOptions(map_fusion=True)
    """

    _types: ClassVar[Mapping[str, type]] = dict.fromkeys(
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
        ),
        bool,
    )


def _check_processes(options: Options, value: int) -> None:
    if value < 0:
        raise ValueError(
            f"worker_processes must be a number of processes, received {value!r}."
        )


class Options(_OptionRecord):
    """Options of a dataset, for `Dataset.with_options`.

    Attributes:
        experimental_distribute: how the dataset is divided among workers.
        worker_processes: the number of Grain's worker processes in which maps with
            `num_parallel_calls` run, instead of threads; for functions that are heavy
            and keep Python busy. The processes are started anew, so a script needs
            the usual ``if __name__ == "__main__"``. Not in TensorFlow.

    The other attributes are accepted for compatibility with TensorFlow.

    Raises:
        TypeError: an attribute is set to a value of another type.

    >>> options = Options()
    >>> options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    >>> from unisono.data import Dataset
    >>> dataset = Dataset.range(4).with_options(options)
    >>> dataset.options() == options
    True
    """

    autotune: AutotuneOptions
    dataset_name: str | None
    deterministic: bool | None
    experimental_distribute: DistributeOptions
    experimental_optimization: OptimizationOptions
    threading: ThreadingOptions
    worker_processes: int
    _types: ClassVar[Mapping[str, type]] = {
        "autotune": AutotuneOptions,
        "dataset_name": str,
        "deterministic": bool,
        "experimental_distribute": DistributeOptions,
        "experimental_external_state_policy": ExternalStatePolicy,
        "experimental_optimization": OptimizationOptions,
        "experimental_slack": bool,
        "experimental_symbolic_checkpoint": bool,
        "experimental_warm_start": bool,
        "framework_type": list,
        "threading": ThreadingOptions,
        "worker_processes": int,
    }
    _defaults: ClassVar[Mapping[str, Any]] = {"worker_processes": 0}
    _aliases: ClassVar[Mapping[str, str]] = {
        "experimental_deterministic": "deterministic",
        "experimental_threading": "threading",
    }
    _checks: ClassVar[Mapping[str, Callable[[Any, Any], None]]] = {
        "worker_processes": _check_processes
    }

    def merge(self, options: Options) -> Options:
        """Returns a copy in which the values that were set on `options` win.

        Raises:
            TypeError: `options` is no `Options`.

        >>> first, second = Options(), Options()
        >>> first.deterministic, second.deterministic = True, False
        >>> first.merge(second).deterministic
        False
        """
        if not isinstance(options, Options):
            raise TypeError(f"Expected an Options object, received {options!r}.")
        return self.merged(options)


publish("unisono.data", Options, ThreadingOptions)
publish(
    "unisono.data.experimental",
    AutoShardPolicy,
    AutotuneAlgorithm,
    AutotuneOptions,
    DistributeOptions,
    ExternalStatePolicy,
    OptimizationOptions,
)
publish("unisono.distribute", InputContext, InputOptions, InputReplicationMode)
