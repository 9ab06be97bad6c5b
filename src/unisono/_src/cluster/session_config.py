"""`ConfigProto`: the settings of TensorFlow's sessions, for programs that pass them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final


@final
class ConfigProto:
    """Settings that programs pass to `distribute.Server`; they have no effect.

    JAX and XLA choose the number of their threads.

    Attributes:
        device_count: how many devices of each kind to use.
        intra_op_parallelism_threads: the threads of one operation.
        inter_op_parallelism_threads: the threads for operations that run in parallel.
        allow_soft_placement: whether an operation may run on another device.
        log_device_placement: whether to log the device of each operation.

    >>> config = ConfigProto(allow_soft_placement=True)
    >>> config.inter_op_parallelism_threads = 4
    >>> config.allow_soft_placement, config.inter_op_parallelism_threads
    (True, 4)
    """

    # As with TensorFlow's class, another attribute is an error.
    __slots__ = (
        "allow_soft_placement",
        "device_count",
        "inter_op_parallelism_threads",
        "intra_op_parallelism_threads",
        "log_device_placement",
    )

    def __init__(
        self,
        *,
        device_count: Mapping[str, int] | None = None,
        intra_op_parallelism_threads: int = 0,
        inter_op_parallelism_threads: int = 0,
        allow_soft_placement: bool = False,
        log_device_placement: bool = False,
    ) -> None:
        self.device_count = dict(device_count or {})
        self.intra_op_parallelism_threads = intra_op_parallelism_threads
        self.inter_op_parallelism_threads = inter_op_parallelism_threads
        self.allow_soft_placement = allow_soft_placement
        self.log_device_placement = log_device_placement
