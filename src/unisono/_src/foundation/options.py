"""Enums and frozen option records, with TensorFlow's names, defaults and checks."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

from unisono._src.foundation.public_names import publish

# The exit code of a program that has saved its state and asks to be started again.
RESTART_CODE = 42


class VariableSynchronization(enum.Enum):
    """When the copies of a variable are brought together."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """How the values that replicas assign, or hold, become one value."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


class ReduceOp(enum.Enum):
    """How values of several replicas are combined.

    >>> ReduceOp.from_variable_aggregation(VariableAggregation.MEAN)
    <ReduceOp.MEAN: 'MEAN'>
    """

    SUM = "SUM"
    MEAN = "MEAN"

    @staticmethod
    def from_variable_aggregation(aggregation: VariableAggregation) -> ReduceOp:
        """The reduction of the same name; NONE and ONLY_FIRST_REPLICA have none."""
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
    """The `ReduceOp` meant by an enum member, its name in any case, or aggregation.

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
    """Which library carries collectives; XLA chooses whatever is asked here."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


@dataclasses.dataclass(frozen=True, init=False)
class CommunicationOptions:
    """Hints for one collective.

    Accepted and validated as TensorFlow does. No field changes a result here. Between
    workers on CPUs gradients travel in packs of up to `bytes_per_pack`; elsewhere XLA
    packs by itself, and it schedules collectives everywhere. `timeout_seconds` given to
    a `MultiWorkerMirroredStrategy` is how long one worker may be behind the others.

    >>> str(CommunicationOptions(bytes_per_pack=1))
    'Options(bytes_per_pack=1,timeout_seconds=None, implementation=CommunicationImplementation.AUTO)'
    """  # noqa: E501

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
        object.__setattr__(self, "bytes_per_pack", bytes_per_pack)
        object.__setattr__(self, "timeout_seconds", timeout_seconds)
        object.__setattr__(self, "implementation", implementation)

    def merge(self, options: CommunicationOptions | None) -> CommunicationOptions:
        """A copy in which the non-default fields of `options` win."""
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
    """What TensorFlow lets a user say about XLA on TPUs; for `RunOptions`.

    Args:
        use_spmd_for_xla_partitioning: one program for all logical devices of a
            replica. It is never otherwise: False is refused.
        enable_xla_dynamic_padder: whether replicas may have inputs of different shapes.
    """

    use_spmd_for_xla_partitioning: bool = True
    enable_xla_dynamic_padder: bool = True


class RunOptions(NamedTuple):
    """Options of `Strategy.run`; as in TensorFlow they concern `TPUStrategy` only.

    Args:
        experimental_enable_dynamic_batch_size: False refuses inputs that have
            different shapes on different replicas. Otherwise every shape gets a
            program of its own.
        experimental_bucketizing_dynamic_shape: True is refused: padding would change
            what a replica function computes.
        experimental_xla_options: a `unisono.tpu.XLAOptions`.
    """

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: object | None = None


def collective_hints(
    bytes_per_pack: int = 0, timeout_seconds: float | None = None
) -> CommunicationOptions:
    """The old name of `CommunicationOptions`, without `implementation`."""
    return CommunicationOptions(bytes_per_pack, timeout_seconds)


def variable_synchronization(value: object, name: object) -> VariableSynchronization:
    """Check the `synchronization` argument of a variable."""
    if isinstance(value, VariableSynchronization):
        return value
    raise ValueError(
        f"Invalid variable synchronization mode: {value!r} for variable: {name}. Pass "
        "a member of unisono.VariableSynchronization."
    )


def variable_aggregation(value: object, name: object) -> VariableAggregation:
    """Check the `aggregation` argument of a variable."""
    if isinstance(value, VariableAggregation):
        return value
    raise ValueError(
        f"Invalid variable aggregation mode: {value!r} for variable: {name}. Pass a "
        "member of unisono.VariableAggregation, such as VariableAggregation.SUM."
    )


publish("unisono", VariableAggregation, VariableSynchronization)
publish("unisono.distribute", ReduceOp, RunOptions)
publish(
    "unisono.distribute.experimental",
    CommunicationImplementation,
    CommunicationOptions,
    CollectiveHints=collective_hints,
)
publish("unisono.tpu", XLAOptions)
