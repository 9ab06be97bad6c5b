"""`Options` of a dataset, with TensorFlow's names and checks."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, final

from unisono._src.input.plan import cursors, nodes
from unisono._src.input.stages.selecting import Make


class AutoShardPolicy(enum.IntEnum):
    """How the elements of a dataset are divided among workers.

    With OFF, every worker reads everything; FILE divides the files, DATA the elements.
    AUTO means FILE if the dataset reads files, and DATA otherwise. HINT shards where
    the pipeline calls `shard(SHARD_HINT, SHARD_HINT)`.

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
    """How TensorFlow treats state outside a dataset; accepted and ignored.

    >>> options = Options()
    >>> options.experimental_external_state_policy = ExternalStatePolicy.IGNORE
    >>> options.experimental_external_state_policy.name
    'IGNORE'
    """

    WARN = 0
    IGNORE = 1
    FAIL = 2


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
            # Made on first access and kept, so that
            # `options.threading.x = 1` sets something.
            self._given[name] = kind()
        return self._given.get(name, self._defaults.get(name))

    def __setattr__(self, name: str, value: object) -> None:
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
        """Returns a copy in which values set on `other` override those set here."""
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
    """Accepted and ignored; pass the number of threads to `map` instead.

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
    """Accepted for compatibility with TensorFlow and ignored.

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
        worker_processes: the number of Grain's worker processes that run the functions
            of maps with `num_parallel_calls`, instead of threads. Use it for slow
            functions that hold Python's global lock. The processes import your script
            again, so it needs the usual ``if __name__ == "__main__"``. Not in
            TensorFlow.
        compiled_maps: whether to compile the functions of maps and call them once for
            many elements. This is faster for arithmetic, but the last digits of floats
            may differ from those of one call per element. The functions must take
            numbers, and must not have state or draw random numbers. Not in TensorFlow.

    The other attributes are accepted for compatibility with TensorFlow.

    Raises:
        TypeError: an attribute is set to a value of the wrong type.

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
    compiled_maps: bool
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
        "compiled_maps": bool,
    }
    _defaults: ClassVar[Mapping[str, Any]] = {
        "worker_processes": 0,
        "compiled_maps": False,
    }
    _aliases: ClassVar[Mapping[str, str]] = {
        "experimental_deterministic": "deterministic",
        "experimental_threading": "threading",
    }
    _checks: ClassVar[Mapping[str, Callable[[Any, Any], None]]] = {
        "worker_processes": _check_processes
    }

    def merge(self, options: Options) -> Options:
        """Returns a copy in which values set on `options` override those set here.

        Raises:
            TypeError: `options` is not an `Options` object.

        >>> first, second = Options(), Options()
        >>> first.deterministic, second.deterministic = True, False
        >>> first.merge(second).deterministic
        False
        """
        if not isinstance(options, Options):
            raise TypeError(f"Expected an Options object, received {options!r}.")
        return self.merged(options)


@final
class WithOptions(nodes.AllElements):
    """The same elements, with options for the whole plan."""

    options: Options

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns the elements as they are."""
        return make()

    def __str__(self) -> str:
        return "Options"


def options_of(node: nodes.Node) -> Options:
    """Returns the options that were set anywhere in a plan, merged; later ones win.

    Of several inputs the last one counts as the latest, as in TensorFlow.
    """
    known: dict[int, Options] = {}

    def merge_from(n: nodes.Node) -> Options:
        # Each node once: a dataset may be the input of several others, and without
        # this the work would double at each such place.
        if id(n) not in known:
            merged = Options()
            for parent in n.parents:
                merged = merged.merge(merge_from(parent))
            if isinstance(n, WithOptions):
                merged = merged.merge(n.options)
            known[id(n)] = merged
        return known[id(n)]

    return merge_from(node)
