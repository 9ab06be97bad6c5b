"""Strategies with the arguments and methods that they have in ``tf.compat.v1``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from unisono._src.cluster.resolvers.base import ClusterResolver
from unisono._src.foundation import options, whole_numbers
from unisono._src.machines.tpu.device_assignment import DeviceAssignment
from unisono._src.strategies import base, mirrored, multi_worker, one_device, tpu


class StrategyV1(base.Strategy):
    """A strategy whose `reduce` needs no `axis`, as in TensorFlow 1."""

    def reduce(  # type: ignore[override]
        self,
        reduce_op: options.ReduceOp | str,
        value: object,
        axis: int | Sequence[int] | None = None,
    ) -> object:
        """Combines a per-replica value into one, as `distribute.Strategy.reduce` does.

        Args:
            reduce_op: a `ReduceOp` or its name, ``"SUM"`` or ``"MEAN"``.
            value: a result of `run`, or a variable.
            axis: None combines element by element across replicas.

        >>> import unisono
        >>> strategy = unisono.compat.v1.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> float(strategy.reduce("SUM", strategy.run(lambda: unisono.constant(2.0))))
        4.0
        """
        found: object = super().reduce(reduce_op, value, axis)
        return found


@final
class MirroredStrategyV1(StrategyV1, mirrored.MirroredStrategy):
    """`distribute.MirroredStrategy` whose `reduce` needs no `axis`.

    >>> import unisono.compat.v1 as tf
    >>> tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).num_replicas_in_sync
    2
    """


@final
class CentralStorageStrategyV1(StrategyV1, mirrored.CentralStorageStrategy):
    """`distribute.experimental.CentralStorageStrategy` whose `reduce` needs no `axis`.

    >>> import unisono.compat.v1 as tf
    >>> devices = ["CPU:0", "CPU:1"]
    >>> strategy = tf.distribute.experimental.CentralStorageStrategy(devices)
    >>> strategy.num_replicas_in_sync
    2
    """


@final
class OneDeviceStrategyV1(StrategyV1, one_device.OneDeviceStrategy):
    """`distribute.OneDeviceStrategy` whose `reduce` needs no `axis`.

    >>> import unisono.compat.v1 as tf
    >>> tf.distribute.OneDeviceStrategy("CPU:1").num_replicas_in_sync
    1
    """


@final
class MultiWorkerMirroredStrategyV1(
    StrategyV1, multi_worker.ExperimentalMultiWorkerMirroredStrategy
):
    """`MultiWorkerMirroredStrategy` of TensorFlow 1, whose `reduce` needs no `axis`.

    >>> import unisono.compat.v1 as tf
    >>> strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    >>> strategy.num_replicas_in_sync
    1
    """


@final
class TPUStrategyV1(StrategyV1, tpu.TPUStrategy):
    """`distribute.TPUStrategy` with TensorFlow 1's arguments.

    Args:
        tpu_cluster_resolver: as for `distribute.TPUStrategy`.
        steps_per_run: accepted, no effect; a program writes its own loops.
        device_assignment: the `experimental_device_assignment` of
            `distribute.TPUStrategy`.

    Raises:
        TypeError: `steps_per_run` is not a whole number.

    >>> TPUStrategyV1(steps_per_run=4).steps_per_run
    4
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        steps_per_run: int | None = None,
        device_assignment: DeviceAssignment | None = None,
    ) -> None:
        if steps_per_run is None:
            steps_per_run = 1
        self._steps = whole_numbers.integer(steps_per_run, "steps_per_run")
        super().__init__(tpu_cluster_resolver, device_assignment)

    @property
    def steps_per_run(self) -> int:
        """The `steps_per_run` of the constructor; 1 by default."""
        return self._steps


def get_loss_reduction() -> options.ReduceOp:
    """Returns the reduction for the losses of replicas, which is SUM.

    TensorFlow returns another reduction only for its losses of TensorFlow 1, which
    unisono does not have.

    >>> get_loss_reduction().name
    'SUM'
    """
    return options.ReduceOp.SUM
