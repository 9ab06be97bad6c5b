"""Tells which strategy and which context the running code is in; the default ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TypeVar, final

from unisono._src.execution import contexts
from unisono._src.foundation import ambient
from unisono._src.state import description
from unisono._src.state.variables import Variable
from unisono._src.strategies import base, call_context, local

_Tree = TypeVar("_Tree")


def get_strategy() -> base.Strategy:
    """Returns the strategy in scope, or the default one.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     get_strategy() is strategy
    True
    >>> get_strategy().num_replicas_in_sync  # The default strategy.
    1
    """
    found = ambient.current().strategy
    return default_strategy() if found is None else found


def describe(tree: object = None) -> description.Description:
    """Describes where each variable is stored, and how many bytes it takes.

    Args:
        tree: a variable, a Keras model or a Flax module, or a nested structure of
            variables and arrays; None for all variables of the strategy in scope, or
            for all variables of the program outside every scope.

    Returns:
        A `Description`, which prints as a table.

    >>> import unisono
    >>> with unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    ...     weight = unisono.Variable([1.0, 2.0], name="weight")
    ...     print(*(row.name for row in unisono.describe().rows))
    weight:0
    """
    if tree is None and not has_strategy():
        return description.describe_scope(None)
    return get_strategy().describe(tree)


def has_strategy() -> bool:
    """Returns whether a strategy other than the default one is in scope.

    >>> import unisono
    >>> with unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    ...     has_strategy()
    True
    >>> has_strategy()
    False
    """
    return ambient.current().strategy is not None


def in_cross_replica_context() -> bool:
    """Returns whether the code runs in cross-replica context, not as a replica.

    This is the case in a scope outside `run`, and in `merge_call` and `update`.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     in_cross_replica_context(), strategy.run(in_cross_replica_context)
    (True, False)
    """
    return ambient.current().mode != ambient.REPLICA


def get_replica_context() -> contexts.ReplicaContext | None:
    """Returns the context of the running replica, or None in cross-replica context.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> strategy.run(lambda: get_replica_context().num_replicas_in_sync)
    2
    >>> with strategy.scope():
    ...     get_replica_context() is None
    True
    """
    frame = ambient.current()
    if frame.mode != ambient.REPLICA:
        return None
    return default_replica_context() if frame.replica is None else frame.replica


def experimental_set_strategy(strategy: base.Strategy | None) -> None:
    """Makes a strategy current in this thread until the next call.

    Args:
        strategy: the strategy; None for the default one.

    Raises:
        RuntimeError: called inside a scope.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> experimental_set_strategy(strategy)
    >>> get_strategy() is strategy
    True
    >>> experimental_set_strategy(None)
    >>> has_strategy()
    False
    """
    if ambient.current() is not ambient.root():
        raise RuntimeError(
            "Must not be called inside a `tf.distribute.Strategy` scope."
        )
    ambient.set_root(ambient.ROOT)
    if strategy is None or call_context.is_default(strategy):
        return
    # The frame of a scope is kept as the one to start from.
    with call_context.scope_of(strategy):
        frame = ambient.current()
    ambient.set_root(frame)


@final
class _DefaultExtended(local.SingleExtended):
    """The methods of one replica that leaves the placement to JAX."""

    def _enter(self, **changes: object) -> AbstractContextManager[object]:
        return ambient.push(copy=0, **changes)

    def _place(self, tree: _Tree) -> _Tree:
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

    def non_slot_devices(self, var_list: Sequence[Variable]) -> Variable:
        """Returns the first of the variables by name."""
        return min(var_list, key=lambda v: v.name)


@final
class _DefaultDistributionStrategy(base.Strategy):
    """The strategy that distributes nothing; there is one object of it."""

    def __init__(self) -> None:
        super().__init__(_DefaultExtended(self))
        call_context.set_default(self)


@functools.cache
def default_strategy() -> base.Strategy:
    """Returns the default strategy, which is made at the first call."""
    return _DefaultDistributionStrategy()


@functools.cache
def default_replica_context() -> contexts.ReplicaContext:
    """Returns the replica context outside any strategy: replica 0 of 1."""
    return contexts.default_replica_context(default_strategy())
