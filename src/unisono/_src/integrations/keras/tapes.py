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
    """Return a `_direct_assign` that stores values without their gradients."""

    @functools.wraps(original)
    def assign(self: Any, value: Any) -> None:
        if ambient.current().tape is not None and adoption.is_plain(self):
            value = frames.strip_gradient(value)
        original(self, value)

    return assign
