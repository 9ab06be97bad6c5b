"""Checks where a strategy's methods are called, and enters the context they need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, final

from unisono._src.foundation import ambient, errors


@final
class _Default:
    """The default strategy, in whose context code is that is in no scope."""

    strategy: Any = None


def set_default(strategy: Any) -> None:
    """Says which strategy is the default one, of which there is one object."""
    _Default.strategy = strategy


def is_default(strategy: Any) -> bool:
    """Whether a strategy is the default one."""
    return strategy is _Default.strategy


def find_placement(strategy: Any) -> Any:
    """Returns where variables made in a strategy's scope go; None for anywhere."""
    # Private, because programs see the class.
    return strategy.extended._placement  # noqa: SLF001


def require_cross_replica(strategy: Any, method: str | None = None) -> None:
    """Raises unless the code is in cross-replica context of `strategy`, or in none.

    Args:
        strategy: the strategy whose method was called.
        method: the message of the error in replica context; None for the usual one.
    """
    frame = ambient.current()
    owner = None if strategy is _Default.strategy else strategy
    if frame.strategy is None or frame.strategy is owner:
        if frame.strategy is None or frame.mode != ambient.REPLICA:
            return
        raise errors.cross_replica_required_error(method)
    raise errors.mixed_strategies_error(frame.strategy, strategy)


def check_args(args: Any) -> None:
    """Raises unless positional arguments come as a list or tuple."""
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            f"positional args must be a list or tuple, got {type(args)}; write "
            "args=(value,) for a single argument."
        )


@contextlib.contextmanager
def scope_of(strategy: Any) -> Iterator[None]:
    """Enters cross-replica context of `strategy` for a block, unless already in it."""
    frame = ambient.current()
    # The same frame object, so that `function` and scopes recognize it.
    if strategy is _Default.strategy or frame.strategy is strategy:
        yield
        return
    # The fields as they are: every eager call comes here, and a property costs a call.
    extended = strategy._extended  # noqa: SLF001
    with ambient.push(
        strategy=strategy,
        mode=ambient.CROSS,
        replica=None,
        port=None,
        copy=None,
        placement=extended._placement,  # noqa: SLF001
        # Tells the creators from before the scope from those inside it.
        outer_creators=len(frame.creators),
        creators=(*frame.creators, *_custom_creators(extended)),
    ):
        yield


def _custom_creators(extended: Any) -> tuple[Any, ...]:
    """Returns the `_create_variable` of a program's own strategy, if it has one."""
    create = getattr(extended, "_create_variable", None)
    return () if create is None else (create,)
