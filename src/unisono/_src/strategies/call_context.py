"""Checks where a strategy's methods are called, and enters the context they need."""

# `_is_default`, `_extended` and `_placement` belong to strategies. They stay private
# because programs see these classes.
# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from unisono._src.foundation import ambient, errors


def require_cross_replica(strategy: Any, method: str | None = None) -> None:
    """Raises unless the code is in cross-replica context of `strategy`, or in none.

    Args:
        strategy: the strategy whose method was called.
        method: the message of the error in replica context; None for the usual one.
    """
    frame = ambient.current()
    owner = None if strategy._is_default else strategy
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
    if strategy._is_default or frame.strategy is strategy:
        yield
        return
    extended = strategy._extended
    with ambient.push(
        strategy=strategy,
        mode=ambient.CROSS,
        replica=None,
        port=None,
        copy=None,
        placement=extended._placement,
        # Tells the creators from before the scope from those inside it.
        outer_creators=len(frame.creators),
        creators=(*frame.creators, *_custom_creators(extended)),
    ):
        yield


def _custom_creators(extended: Any) -> tuple[Any, ...]:
    """Returns the `_create_variable` of a program's own strategy, if it has one."""
    create = getattr(extended, "_create_variable", None)
    return () if create is None else (create,)
