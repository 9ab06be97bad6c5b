"""`cross_device_ops`: accepted for TensorFlow's sake; XLA does the communication.

TensorFlow lets a program choose how `MirroredStrategy` adds up values. Here XLA makes
that choice when it compiles (NCCL on GPU, its own rings on TPU, shared memory between
virtual CPU devices), and gives the same result for each of these.
"""

from __future__ import annotations

from unisono._src.foundation.public_names import publish


class CrossDeviceOps:
    """Base of the ways to combine values across devices."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class ReductionToOneDevice(CrossDeviceOps):
    """Collect on one device, then broadcast.

    Args:
        reduce_to_device: where to collect; kept, not used by XLA.
        accumulation_fn: how to add; only addition is meaningful.
    """

    def __init__(
        self, reduce_to_device: str | None = None, accumulation_fn: object = None
    ) -> None:
        self.reduce_to_device = reduce_to_device
        self.accumulation_fn = accumulation_fn


class NcclAllReduce(CrossDeviceOps):
    """All-reduce by NVIDIA's library, which XLA uses on GPU in any case.

    Args:
        num_packs: how many messages to pack into; XLA packs by itself.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _checked_packs("NCCL all-reduce", num_packs)


class HierarchicalCopyAllReduce(CrossDeviceOps):
    """All-reduce in two levels; XLA chooses the levels.

    Args:
        num_packs: how many messages to pack into; XLA packs by itself.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _checked_packs("HierarchicalCopy", num_packs)


def _checked_packs(who: str, count: int) -> int:
    if count < 0:
        raise ValueError(f"{who} requires num_packs >= 0, but {count} is specified")
    return count


def check(cross_device_ops: object) -> None:
    """Raise unless None or one of the classes above."""
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
