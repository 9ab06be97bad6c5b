"""The default strategy, which is current when no strategy is in scope."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, final

from unisono._src.execution import contexts
from unisono._src.foundation import ambient
from unisono._src.strategies import base, call_context, local


@final
class _DefaultExtended(local.SingleExtended):
    """The methods of one replica that leaves the placement to JAX."""

    def _enter(self, **changes: Any) -> Any:
        return ambient.push(copy=0, **changes)

    def _place(self, tree: Any) -> Any:
        return tree

    @property
    def worker_devices(self) -> Sequence[str]:
        """Raises: the default strategy names no devices."""
        raise RuntimeError(
            "worker_devices() method unsupported by default tf.distribute.Strategy."
        )

    @property
    def parameter_devices(self) -> Sequence[str]:
        """Raises: the default strategy names no devices."""
        raise RuntimeError(
            "parameter_devices() method unsupported by default tf.distribute.Strategy."
        )

    def non_slot_devices(self, var_list: Sequence[Any]) -> Any:
        """Returns the first of the variables by name."""
        return min(var_list, key=lambda v: v.name)


@final
class _DefaultDistributionStrategy(base.Strategy):
    """The strategy that distributes nothing; there is one object of it."""

    def __init__(self) -> None:
        super().__init__(_DefaultExtended(self))
        call_context.set_default(self)


@functools.cache
def instance() -> base.Strategy:
    """Returns the default strategy, which is made at the first call."""
    return _DefaultDistributionStrategy()


@functools.cache
def replica_context() -> contexts.ReplicaContext:
    """Returns the replica context outside any strategy: replica 0 of 1."""
    return contexts.default_replica_context(instance())
