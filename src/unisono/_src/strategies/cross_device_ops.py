"""The `cross_device_ops` classes, which are accepted for TensorFlow's sake.

TensorFlow lets a program choose how `MirroredStrategy` adds up values. Here XLA makes
that choice when it compiles (NCCL on GPU, its own rings on TPU, shared memory between
virtual CPU devices), and gives the same result for each of these classes.
"""

from __future__ import annotations

from unisono._src.foundation.public_names import publish


class CrossDeviceOps:
    """The base class of the ways to combine values across devices.

    >>> isinstance(NcclAllReduce(), CrossDeviceOps)
    True
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class ReductionToOneDevice(CrossDeviceOps):
    """Asks to collect values on one device and to broadcast the result.

    Args:
        reduce_to_device: the device to collect on; kept, but XLA does not use it.
        accumulation_fn: the function that adds; kept, but XLA does not use it.

    >>> ops = ReductionToOneDevice("CPU:0")
    >>> ops.reduce_to_device
    'CPU:0'
    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"], ops)
    """

    def __init__(
        self, reduce_to_device: str | None = None, accumulation_fn: object = None
    ) -> None:
        self.reduce_to_device = reduce_to_device
        self.accumulation_fn = accumulation_fn


class NcclAllReduce(CrossDeviceOps):
    """Asks for NVIDIA's library, which XLA uses on GPUs in any case.

    Args:
        num_packs: the number of messages to pack into; kept, but XLA packs by itself.

    Raises:
        ValueError: `num_packs` is negative.

    >>> NcclAllReduce(num_packs=2).num_packs
    2
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _check_packs("NCCL all-reduce", num_packs)


class HierarchicalCopyAllReduce(CrossDeviceOps):
    """Asks for an all-reduce in two levels; XLA chooses the levels.

    Args:
        num_packs: the number of messages to pack into; kept, but XLA packs by itself.

    Raises:
        ValueError: `num_packs` is negative.

    >>> HierarchicalCopyAllReduce().num_packs
    1
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _check_packs("HierarchicalCopy", num_packs)


def _check_packs(who: str, count: int) -> int:
    if count < 0:
        raise ValueError(f"{who} requires num_packs >= 0, but {count} is specified")
    return count


def check(cross_device_ops: object) -> None:
    """Raises unless the argument is None or an object of one of the classes above."""
    if cross_device_ops is not None and not isinstance(
        cross_device_ops, CrossDeviceOps
    ):
        raise ValueError(
            "Expected cross_device_ops to be a unisono.distribute.CrossDeviceOps such "
            f"as ReductionToOneDevice(), received {cross_device_ops!r}."
        )


publish(
    "unisono.distribute",
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReductionToOneDevice,
)
