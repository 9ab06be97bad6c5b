"""Keras variables made outside every scope, as gradient tapes follow them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras.src.backend.common import stateless_scope

from unisono._src.foundation import ambient
from unisono._src.integrations import followed_reads
from unisono._src.integrations.keras import adoption
from unisono._src.state import frames


def wrap_value(original: property) -> property:
    """Return a `value` of Keras variables that open tapes follow."""
    get = original.fget

    # mypy knows that a property may have no getter; this one has.
    @functools.wraps(get)  # type: ignore[arg-type]
    def value(self: Any) -> Any:
        tape = ambient.current().tape
        found = get(self)  # type: ignore[misc]
        # The getter may have brought the variable into a strategy.
        if tape is None or not adoption.is_plain(self):
            return found
        raw = self._value
        if raw is None or stateless_scope.in_stateless_scope():
            return found
        return self._maybe_autocast(
            followed_reads.follow(tape, self, raw, self.trainable)
        )

    return property(value)


def wrap_assign(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `_direct_assign` that stores no gradient, and no value of a trace."""

    @functools.wraps(original)
    def assign(self: Any, value: Any) -> None:
        if not adoption.is_plain(self) or stateless_scope.in_stateless_scope():
            original(self, value)
        elif frames.frame().is_compiled and self.__dict__.get("_value") is not None:
            adoption.bring_into_program(self)
            self._direct_assign(value)  # It is another class's now.
        elif ambient.current().tape is not None:
            original(self, frames.strip_gradient(value))
        else:
            original(self, value)

    return assign
