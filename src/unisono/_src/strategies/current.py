"""Which strategy and which context the running code is in."""

from __future__ import annotations

from unisono._src.execution import contexts
from unisono._src.foundation import ambient
from unisono._src.foundation.public_names import publish
from unisono._src.strategies import base, default, extended


def get_strategy() -> base.Strategy:
    """The strategy in scope, or the default one."""
    found = ambient.current().strategy
    return default.instance() if found is None else found


def has_strategy() -> bool:
    """Whether a strategy other than the default one is in scope."""
    return ambient.current().strategy is not None


def in_cross_replica_context() -> bool:
    """Whether the running code sees all replicas: in scope, merge_call or update."""
    return ambient.current().mode != ambient.REPLICA


def get_replica_context() -> contexts.ReplicaContext | None:
    """The context of the running replica, or None in cross-replica context."""
    frame = ambient.current()
    if frame.mode != ambient.REPLICA:
        return None
    return default.replica_context() if frame.replica is None else frame.replica


def experimental_set_strategy(strategy: base.Strategy | None) -> None:
    """Enter a strategy's scope for good in this thread; None leaves it.

    Raises:
        RuntimeError: called inside a scope.
    """
    if ambient.current() is not ambient.root():
        raise RuntimeError(
            "Must not be called inside a 'tf.distribute.Strategy' scope."
        )
    ambient.set_root(ambient.ROOT)
    if strategy is None or strategy._is_default:
        return
    with extended.scope_of(strategy):
        frame = ambient.current()
    ambient.set_root(frame)


publish(
    "unisono.distribute",
    experimental_set_strategy,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
