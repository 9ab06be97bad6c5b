"""Enums and frozen option records, with TensorFlow's names, defaults and checks."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple, final

# The exit code of a program that has saved its state and asks to be started again.
# TensorFlow's (decision 0015).
RESTART_CODE = 42


class VariableSynchronization(enum.Enum):
    """Says when the copies of a variable are combined into one value.

    Attributes:
        AUTO: the strategy chooses; it always chooses ON_WRITE.
        NONE: never; allowed only for variables outside every strategy.
        ON_WRITE: on every write, so that all copies are equal.
        ON_READ: on a read in cross-replica context; each replica writes its own copy.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     seen = unisono.Variable(
    ...         0.0,
    ...         synchronization=unisono.VariableSynchronization.ON_READ,
    ...         aggregation=unisono.VariableAggregation.SUM,
    ...     )
    >>> _ = strategy.run(lambda: seen.assign_add(1.0))
    >>> float(seen.numpy())
    2.0
    """

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """Says how values that replicas assign or hold are combined into one value.

    Attributes:
        NONE: not at all; a replica that assigns a mirrored variable gets an error.
        SUM: their sum.
        MEAN: their mean.
        ONLY_FIRST_REPLICA: the value of the first replica.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     v = unisono.Variable(0.0, aggregation=unisono.VariableAggregation.MEAN)
    >>> def replica_fn():
    ...     replica = unisono.distribute.get_replica_context()
    ...     v.assign(10.0 * replica.replica_id_in_sync_group)
    >>> strategy.run(replica_fn)
    >>> float(v.numpy())
    5.0
    """

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


class ReduceOp(enum.Enum):
    """Says how the values of several replicas are combined.

    Attributes:
        SUM: their sum.
        MEAN: their mean.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> values = strategy.experimental_distribute_values_from_function(
    ...     lambda context: 10.0 * context.replica_id_in_sync_group
    ... )
    >>> float(strategy.reduce(unisono.distribute.ReduceOp.SUM, values, axis=None))
    10.0
    >>> float(strategy.reduce(unisono.distribute.ReduceOp.MEAN, values, axis=None))
    5.0
    """

    SUM = "SUM"
    MEAN = "MEAN"

    @staticmethod
    def from_variable_aggregation(aggregation: VariableAggregation) -> ReduceOp:
        """Returns the reduction of the same name.

        Args:
            aggregation: SUM or MEAN.

        Raises:
            ValueError: it is NONE or ONLY_FIRST_REPLICA, which are not reductions.

        >>> ReduceOp.from_variable_aggregation(VariableAggregation.MEAN)
        <ReduceOp.MEAN: 'MEAN'>
        """
        if aggregation is VariableAggregation.SUM:
            return ReduceOp.SUM
        if aggregation is VariableAggregation.MEAN:
            return ReduceOp.MEAN
        raise ValueError(
            f"Could not convert from `tf.VariableAggregation` {aggregation} to"
            "`tf.distribute.ReduceOp` type; expected SUM or MEAN. A variable that is "
            "read across replicas needs aggregation=SUM, MEAN or ONLY_FIRST_REPLICA."
        )


def reduce_op(op: object) -> ReduceOp:
    """Returns the `ReduceOp` that an argument of a public method stands for.

    Args:
        op: a `ReduceOp`, its name in upper or lower case, or a `VariableAggregation`.

    >>> reduce_op("mean")
    <ReduceOp.MEAN: 'MEAN'>
    """
    if isinstance(op, ReduceOp):
        return op
    if isinstance(op, str):
        return ReduceOp(op.upper())
    if isinstance(op, VariableAggregation):
        return ReduceOp.from_variable_aggregation(op)
    raise AssertionError(
        "Expected a ReduceOp, 'SUM' or 'MEAN' as the reduce op, received "
        f"{op!r} of type {type(op).__name__}."
    )


class CommunicationImplementation(enum.Enum):
    """The library for collectives; it has no effect, because XLA chooses one.

    Attributes:
        AUTO: no preference.
        RING: rings over the network, which TensorFlow uses on CPUs.
        NCCL: NVIDIA's library for GPUs.

    >>> CommunicationOptions(implementation="nccl").implementation
    <CommunicationImplementation.NCCL: 'NCCL'>
    """

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


@dataclasses.dataclass(frozen=True, init=False)
class CommunicationOptions:
    """Hints for collectives, checked as in TensorFlow; they never change a result.

    Args:
        bytes_per_pack: how many bytes of gradients workers on CPUs send together at
            most; 0 lets unisono choose. On other devices XLA decides.
        timeout_seconds: for `MultiWorkerMirroredStrategy`: how long one worker may be
            behind the others. None means the default of the strategy.
        implementation: a `CommunicationImplementation` or its name. It has no effect:
            XLA chooses the library.

    Raises:
        ValueError: `bytes_per_pack` is negative, or `implementation` is unknown.

    >>> import unisono
    >>> options = unisono.distribute.experimental.CommunicationOptions(
    ...     bytes_per_pack=50 * 1024 * 1024, timeout_seconds=120.0
    ... )
    >>> options.bytes_per_pack, options.timeout_seconds, options.implementation.name
    (52428800, 120.0, 'AUTO')
    """

    bytes_per_pack: int
    timeout_seconds: float | None
    implementation: CommunicationImplementation

    def __init__(
        self,
        bytes_per_pack: int = 0,
        timeout_seconds: float | None = None,
        implementation: CommunicationImplementation
        | str = CommunicationImplementation.AUTO,
    ) -> None:
        if bytes_per_pack < 0:
            raise ValueError(
                f"Argument `bytes_per_pack` must be >=0, Received {bytes_per_pack}."
            )
        if isinstance(implementation, str):
            implementation = CommunicationImplementation(implementation.upper())
        if not isinstance(implementation, CommunicationImplementation):
            raise ValueError(
                "Argument `implementation` must be a CommunicationImplementation or "
                f"its name, Received {implementation!r}."
            )
        # A frozen dataclass has no other way to set a field in its own `__init__`.
        object.__setattr__(self, "bytes_per_pack", bytes_per_pack)
        object.__setattr__(self, "timeout_seconds", timeout_seconds)
        object.__setattr__(self, "implementation", implementation)

    def merge(self, options: CommunicationOptions | None) -> CommunicationOptions:
        """Returns `options`, with our values for the fields that have defaults there.

        >>> ours = CommunicationOptions(bytes_per_pack=8, timeout_seconds=5.0)
        >>> merged = ours.merge(CommunicationOptions(timeout_seconds=9.0))
        >>> merged.bytes_per_pack, merged.timeout_seconds
        (8, 9.0)
        """
        if options is None:
            return self
        auto = CommunicationImplementation.AUTO
        timeout = options.timeout_seconds
        chosen = options.implementation
        return CommunicationOptions(
            options.bytes_per_pack or self.bytes_per_pack,
            self.timeout_seconds if timeout is None else timeout,
            self.implementation if chosen is auto else chosen,
        )

    def __str__(self) -> str:
        return (
            f"Options(bytes_per_pack={self.bytes_per_pack},"
            f"timeout_seconds={self.timeout_seconds}, "
            f"implementation={self.implementation})"
        )


class XLAOptions(NamedTuple):
    """Options of XLA on TPUs, for `RunOptions`.

    Args:
        use_spmd_for_xla_partitioning: whether all logical devices of a replica run
            one program. They always do, so `TPUStrategy.run` raises an error for False.
        enable_xla_dynamic_padder: whether replicas may have inputs of different shapes.

    >>> import unisono
    >>> options = unisono.tpu.XLAOptions(enable_xla_dynamic_padder=False)
    >>> options.use_spmd_for_xla_partitioning, options.enable_xla_dynamic_padder
    (True, False)
    """

    use_spmd_for_xla_partitioning: bool = True
    enable_xla_dynamic_padder: bool = True


class RunOptions(NamedTuple):
    """Options of `Strategy.run`; only `TPUStrategy` uses them, as in TensorFlow.

    Args:
        experimental_enable_dynamic_batch_size: whether the inputs of replicas may have
            different shapes. Each combination of shapes is compiled separately.
        experimental_bucketizing_dynamic_shape: whether inputs are padded to common
            shapes. Padding would change what a replica function computes, so
            `TPUStrategy.run` raises an error for True.
        experimental_xla_options: a `unisono.tpu.XLAOptions`, or None.

    >>> import numpy as np, unisono
    >>> strategy = unisono.distribute.TPUStrategy()
    >>> uneven = strategy.experimental_distribute_values_from_function(
    ...     lambda context: np.ones(1 + context.replica_id_in_sync_group)
    ... )
    >>> options = unisono.distribute.RunOptions(
    ...     experimental_enable_dynamic_batch_size=False
    ... )
    >>> strategy.run(np.sum, args=(uneven,), options=options)
    Traceback (most recent call last):
    ValueError: Only static shapes are allowed by these RunOptions...
    """

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: object | None = None


@final
class CollectiveHints(CommunicationOptions):
    """Returns `CommunicationOptions`; an older name, without `implementation`.

    Args:
        bytes_per_pack: see `CommunicationOptions`.
        timeout_seconds: see `CommunicationOptions`.

    >>> import unisono
    >>> hints = unisono.distribute.experimental.CollectiveHints(bytes_per_pack=8)
    >>> hints == unisono.distribute.experimental.CommunicationOptions(bytes_per_pack=8)
    True
    """

    # As in TensorFlow, whose class makes objects of the newer one, too.
    def __new__(  # type: ignore[misc]
        cls, bytes_per_pack: int = 0, timeout_seconds: float | None = None
    ) -> CommunicationOptions:
        return CommunicationOptions(bytes_per_pack, timeout_seconds)


def variable_synchronization(value: object, name: object) -> VariableSynchronization:
    """Returns the `synchronization` argument of a variable, or raises `ValueError`.

    Args:
        value: the argument.
        name: the name of the variable, for the message.
    """
    if isinstance(value, VariableSynchronization):
        return value
    raise ValueError(
        f"Invalid variable synchronization mode: {value} for variable: {name}. Pass "
        "a member of unisono.VariableSynchronization."
    )


def variable_aggregation(value: object, name: object) -> VariableAggregation:
    """Returns the `aggregation` argument of a variable, or raises `ValueError`.

    Args:
        value: the argument; None is NONE.
        name: the name of the variable, for the message.
    """
    if value is None:
        return VariableAggregation.NONE
    if isinstance(value, VariableAggregation):
        return value
    raise ValueError(
        f"Invalid variable aggregation mode: {value} for variable: {name}. Pass a "
        "member of unisono.VariableAggregation, such as VariableAggregation.SUM."
    )
