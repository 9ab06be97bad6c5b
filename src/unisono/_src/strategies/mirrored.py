"""The strategies with several replicas on one machine.

`MirroredStrategy` has a copy of each variable on every device, `CentralStorageStrategy`
one copy on one of them.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, final

import jax

from unisono._src.machines import devices, shard_plan
from unisono._src.machines.topology import Topology
from unisono._src.state.storage import Placement, Policy
from unisono._src.strategies import base, cross_device_ops, local, replicated
from unisono._src.strategies.cross_device_ops import CrossDeviceOps


class MirroredStrategy(base.Strategy):
    """Trains synchronously on several devices of one machine.

    Every device holds a copy of each variable, and all copies stay equal.

    Args:
        devices: device names such as ``["GPU:0", "GPU:1"]``; by default all
            accelerators, or all CPU devices if there are none. If you name ``"CPU:7"``
            before JAX creates its devices, there are eight virtual CPU devices.
        cross_device_ops: an object that combines the values of replicas: of your own
            class, or a `ReductionToOneDevice` with an `accumulation_fn`. Other objects
            have no effect: XLA chooses how to communicate.
        state: ``"mirrored"``, or ``"sharded"``: large variables, and the slots of
            optimizers, are split over the devices and gathered where they are read.
            Programs and their results stay the same.
        shard_above: variables with at least this number of elements are split; by
            default 65,536.
        shard_rules: a dictionary from regular expressions to the axis to split, or to
            None to keep a variable whole. The first expression that is found in the
            name of a large variable applies. By default, the largest axis that can be
            split is split. With three or more axes, the first one is split only if no
            other can be. If the number of devices does not divide the axis, the
            variable is split over groups of devices.
        gather: when a compiled step gathers split weights: ``"use"`` (the default)
            where it uses them, ``"step"`` all at the start, which takes more memory.

    Raises:
        ValueError: a device does not exist, or another argument has an invalid value.
        TypeError: `shard_rules` is not such a dictionary.
        AssertionError: you name a device twice.

    >>> import unisono
    >>> strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     weight = unisono.Variable(3.0)
    >>> def step(x):
    ...     return weight * x
    >>> float(strategy.reduce("SUM", strategy.run(step, args=(2.0,)), axis=None))
    12.0
    """

    def __init__(
        self,
        devices: Sequence[str | jax.Device] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        *,
        state: Literal["mirrored", "sharded"] = "mirrored",
        shard_above: int | None = None,
        shard_rules: Mapping[str, int | None] | None = None,
        gather: Literal["use", "step"] | None = None,
    ) -> None:
        ops = _ops_of_program(cross_device_ops)
        plan = shard_plan.make_plan(state, shard_above, shard_rules, gather)
        asked = devices or _all_devices()
        topology = Topology.of(_choose(self, asked))
        placement = local.home_placement(self, topology, Policy.MIRRORED, plan)
        placement = dataclasses.replace(placement, ops=ops)
        super().__init__(replicated.ReplicatedExtended(self, placement))


class CentralStorageStrategy(base.Strategy):
    """Keeps variables on one device and computes on several.

    Args:
        compute_devices: the devices of the replicas; by default all accelerators, or
            one CPU device if there are none.
        parameter_device: the device of the variables; by default the compute device if
            there is only one, otherwise ``CPU:0``.

    >>> import unisono
    >>> strategy = CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:2")
    >>> with strategy.scope():
    ...     weight = unisono.Variable(3.0)
    >>> weight.device[-5:], strategy.num_replicas_in_sync
    ('CPU:2', 2)
    >>> float(strategy.reduce("SUM", strategy.run(lambda: weight * 2.0), axis=None))
    12.0
    """

    def __init__(
        self,
        compute_devices: Sequence[str | jax.Device] | None = None,
        parameter_device: str | jax.Device | None = None,
    ) -> None:
        asked = compute_devices or _default_devices()
        topology = Topology.of(_choose(self, asked))
        if parameter_device is None:
            # TensorFlow's rule: several accelerators share the host's memory.
            parameter_device = topology.names[0] if topology.replicas == 1 else "CPU:0"
        names, found = devices.resolve([parameter_device])
        placement = Placement(self, topology, Policy.CENTRAL, found[0], names[0])
        super().__init__(replicated.ReplicatedExtended(self, placement))


def _default_devices() -> Sequence[str]:
    """Returns all accelerators, or the first CPU device if there are none."""
    names = devices.default_names()
    return names if jax.local_devices()[0].platform != "cpu" else names[:1]


# Parameters of the first constructor have the names of these modules.
_all_devices = devices.default_names
_ops_of_program = cross_device_ops.find_program_ops


@final
class ForcedReplicas:
    """The number of replicas that new strategies have, whatever devices they name.

    A comparison of runs on one device and on several sets it.

    Attributes:
        count: the number of replicas of new strategies; None leaves them as they are.
        strategies: the strategies that have it.
    """

    count: int | None = None
    strategies: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()


def _choose(strategy: object, asked: Sequence[Any]) -> Sequence[Any]:
    """Returns the devices of a new strategy: those asked for, or the forced number."""
    if ForcedReplicas.count is None:
        return asked
    ForcedReplicas.strategies.add(strategy)
    return _all_devices()[: ForcedReplicas.count]
