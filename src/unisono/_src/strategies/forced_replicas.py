"""The number of replicas that a command asks for, whatever devices a program names."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, ClassVar, final


@final
class ForcedReplicas:
    """The number, and who has it.

    Attributes:
        count: the number of replicas of new strategies; None leaves them as they are.
        strategies: the strategies that have it.
    """

    count: int | None = None
    strategies: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()


def choose(strategy: object, asked: Sequence[Any], known: Sequence[Any]) -> Any:
    """Returns the devices of a new strategy.

    Args:
        strategy: the strategy.
        asked: the devices that the program names.
        known: the names of all devices.
    """
    if ForcedReplicas.count is None:
        return asked
    ForcedReplicas.strategies.add(strategy)
    return known[: ForcedReplicas.count]
