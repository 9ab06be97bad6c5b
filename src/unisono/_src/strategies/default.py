"""The default strategy: what holds when no strategy is in scope."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, final

from unisono._src.execution import contexts
from unisono._src.foundation import ambient
from unisono._src.strategies import base, local


@final
class _DefaultExtended(local.SingleExtended):
    """One replica, no placement."""

    def _entered(self, **changes: Any) -> Any:
        return ambient.pushed(copy=0, **changes)

    def _placed(self, tree: Any) -> Any:
        return tree

    @property
    def worker_devices(self) -> Sequence[str]:
        """The default strategy names no devices."""
        raise RuntimeError(
            "worker_devices() method unsupported by default tf.distribute.Strategy."
        )

    @property
    def parameter_devices(self) -> Sequence[str]:
        """The default strategy names no devices."""
        raise RuntimeError(
            "parameter_devices() method unsupported by default tf.distribute.Strategy."
        )

    def non_slot_devices(self, var_list: Sequence[Any]) -> Any:
        """The variable with the smallest name."""
        return min(var_list, key=lambda v: v.name)


@final
class _DefaultDistributionStrategy(base.Strategy):
    """The no-op strategy; there is one."""

    _is_default = True

    def __init__(self) -> None:
        super().__init__(_DefaultExtended(self))


@functools.cache
def instance() -> base.Strategy:
    """The default strategy."""
    return _DefaultDistributionStrategy()


@functools.cache
def replica_context() -> contexts.ReplicaContext:
    """The replica context outside any strategy: replica 0 of 1."""
    return contexts.default_replica_context(instance())
