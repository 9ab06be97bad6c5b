"""The default strategy: what holds when no strategy is in scope."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from unisono._src import ambient, collectives, contexts, options
from unisono._src.strategies import base, extended


class _DefaultExtended(extended.StrategyExtended):
    """One replica, no placement."""

    @property
    def _num_replicas_in_sync(self) -> int:
        return 1

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        context = contexts.ReplicaContext(
            self._container_strategy(), contexts.replica_id(0)
        )
        with ambient.pushed(
            mode=ambient.REPLICA, replica=context, port=collectives.Solo(), copy=0
        ):
            return fn(*args, **kwargs)

    def _reduce_to(self, op: Any, value: Any, destinations: Any, options: Any) -> Any:
        return value

    def _reduce(self, op: options.ReduceOp, value: Any) -> Any:
        return value

    def _gather(self, value: Any, axis: int) -> Any:
        return value

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        return tensor

    def _update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        return self._update_non_slot(var, fn, (var, *args), kwargs, group)

    def _update_non_slot(
        self, colocate_with: Any, fn: Any, args: Any, kwargs: Any, group: bool
    ) -> Any:
        with ambient.pushed(mode=ambient.UPDATE, replica=None, copy=0):
            result = fn(*args, **kwargs)
        return extended.single_result(result, group)

    def _distribute_dataset(self, dataset: Any) -> Any:
        return dataset

    def _values_from_function(self, value_fn: Any) -> Any:
        return value_fn(base.ValueContext())

    @property
    def experimental_between_graph(self) -> bool:
        """False: one process, one program."""
        return False

    @property
    def experimental_should_init(self) -> bool:
        """True: this process initialises variables."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """True: this process writes checkpoints."""
        return True

    @property
    def should_save_summary(self) -> bool:
        """True: this process writes summaries."""
        return True

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

    def value_container(self, value: Any) -> Any:
        """Values are their own containers here."""
        return value

    def read_var(self, v: Any) -> Any:
        """The value of a variable."""
        return v.read_value()

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
