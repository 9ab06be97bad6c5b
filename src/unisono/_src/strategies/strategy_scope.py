"""Enters and leaves the scope of a strategy, as ``with strategy.scope():`` does."""

from __future__ import annotations

import contextlib
from typing import Any, Generic, TypeVar, final

from unisono._src.foundation import ambient, library_hooks
from unisono._src.strategies import call_context

_Strategy = TypeVar("_Strategy")


@final
class StrategyScope(Generic[_Strategy]):
    """The context manager that `Strategy.scope` returns.

    It may be entered again inside itself or inside another scope of the strategy, but
    not after it was left for good.
    """

    def __init__(self, strategy: _Strategy) -> None:
        self._strategy = strategy
        # How to leave each block, and the frame that it runs in.
        self._open: list[tuple[contextlib.ExitStack, ambient.Frame]] = []
        self._loaded: list[Any] = []
        self._left = False
        # Whether leaving it was an error, after which a program may leave it again.
        self._is_broken = False

    def __enter__(self) -> _Strategy:
        if self._left and not self._open:
            raise AttributeError(
                "This scope was left and cannot be entered again; call "
                "strategy.scope() for a new one."
            )
        check_scope(self._strategy)
        with contextlib.ExitStack() as stack:
            stack.enter_context(call_context.scope_of(self._strategy))
            self._loaded = stack.enter_context(library_hooks.enter_scopes())
            # Both were entered without an error: from now on `__exit__` leaves them.
            self._open.append((stack.pop_all(), ambient.current()))
        return self._strategy

    def __exit__(self, *exc: Any) -> None:
        if not self._open:
            self._check_broken()
            return
        # Compared with the frame that was entered: TensorFlow raises if a block inside
        # is still open.
        found = ambient.current()
        stack, frame = self._open.pop()
        stack.__exit__(*exc)
        outer = ambient.current()
        # Inside a scope of the same strategy there was nothing to enter.
        is_nested = outer is found and not call_context.is_default(self._strategy)
        self._left = self._left or not is_nested
        if found is not frame and found.strategy is not self._strategy:
            # A block around it was left first, with an error; this one ended then.
            ambient.swap(found)
        elif found is not frame and not is_nested:
            self._is_broken = True
            raise RuntimeError(
                "Variable creator scope nesting error: the strategy's scope was left "
                "inside a variable_creator_scope, or another block, that was entered "
                "in it. Leave that one first."
            )
        library_hooks.check_known(self._loaded)

    def _check_broken(self) -> None:
        """Raises `RuntimeError` unless leaving the scope was an error before.

        TensorFlow leaves a scope only when it is left without an error, so a program
        leaves it again; here it was left already.
        """
        if not self._is_broken:
            raise RuntimeError(
                "Variable scope nesting error: this strategy's scope was left already, "
                "or never entered. Leave a scope as often as you enter it, or write "
                "`with strategy.scope():`."
            )
        self._is_broken = False


def check_scope(strategy: Any) -> None:
    """Raises unless the scope of `strategy` may be entered here."""
    frame = ambient.current()
    if frame.strategy is not None and call_context.is_default(strategy):
        raise RuntimeError(
            "Must not nest tf.distribute.Strategy scopes: the default strategy's "
            f"scope cannot be entered inside that of {frame.strategy!r}."
        )
    call_context.require_cross_replica(strategy)
