"""Lets other code take part in the calls of compiled functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, final

from unisono._src.execution import program_cache

# Gets the arguments, and a function that makes the call with these or others.
Observer = Callable[[tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


@final
class Observers:
    """Who takes part.

    Attributes:
        current: called instead of each call that starts a program; None for nobody.
    """

    current: Observer | None = None


@contextlib.contextmanager
def observe_calls(observer: Observer) -> Iterator[None]:
    """Has a function called instead of each call that starts a program, in a block."""
    outer, Observers.current = Observers.current, observer
    program_cache.forget_last_calls()
    try:
        yield
    finally:
        Observers.current = outer
        program_cache.forget_last_calls()
