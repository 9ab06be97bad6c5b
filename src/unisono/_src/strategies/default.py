"""The default strategy: what holds when no strategy is in scope."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from unisono._src import input as pipelines
from unisono._src.execution import contexts
from unisono._src.foundation import ambient
from unisono._src.strategies import base, local


class _DefaultExtended(local.SingleExtended):
    """One replica, no placement."""

    def _entered(self, **changes: Any) -> Any:
        return ambient.pushed(copy=0, **changes)

    def _placed(self, tree: Any) -> Any:
        return tree

    def _distribute_dataset(self, dataset: Any, options: Any) -> Any:
        return dataset

    def _distribute_from_function(self, dataset_fn: Any, options: Any) -> Any:
        options = pipelines.dataset_options
        return options.made_by(dataset_fn, options.InputContext())

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

    def variable_created_in_scope(self, v: Any) -> bool:
        """Whether `v` belongs to no strategy."""
        return getattr(v, "distribute_strategy", self) is None

    def colocate_vars_with(self, colocate_with_variable: Any) -> Any:
        """Context manager without effect: there is one place for variables."""
        if not self.variable_created_in_scope(colocate_with_variable):
            raise ValueError(
                "`colocate_vars_with` must only be passed a variable created in this "
                f"tf.distribute.Strategy.scope(), not: {colocate_with_variable!r}"
            )
        return ambient.pushed(colocate=colocate_with_variable)


class _DefaultDistributionStrategy(base.Strategy):
    """The no-op strategy; there is one."""

    _is_default = True

    def __init__(self) -> None:
        super().__init__(_DefaultExtended(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise RuntimeError(
            "Should only create a single instance of _DefaultDistributionStrategy"
        )

    def __repr__(self) -> str:
        return "<_DefaultDistributionStrategy>"


@functools.cache
def instance() -> base.Strategy:
    """The default strategy."""
    return _DefaultDistributionStrategy()


@functools.cache
def replica_context() -> contexts.ReplicaContext:
    """The replica context outside any strategy: replica 0 of 1."""
    return contexts.default_replica_context(instance())
