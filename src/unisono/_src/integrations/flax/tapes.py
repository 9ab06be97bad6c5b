"""Flax NNX variables made outside every scope, as gradient tapes follow them."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from unisono._src.foundation import ambient
from unisono._src.integrations import followed_reads
from unisono._src.state import frames


def wrap_raw_value(slot: Any) -> property:
    """Return a property in the place of the slot that has the value of a variable.

    A read is followed by open tapes; a value that is assigned to a variable loses its
    gradient.
    """

    def get(self: Any) -> Any:
        tape, value = ambient.current().tape, slot.__get__(self)
        if tape is None:
            return value
        is_trainable = isinstance(self, nnx.Param)
        return followed_reads.follow(tape, self, value, is_trainable)

    def set_value(self: Any, value: Any) -> None:
        if ambient.current().tape is not None and _has_array(self, slot):
            value = frames.strip_gradient(value)
        slot.__set__(self, value)

    return property(get, set_value)


def _has_array(variable: Any, slot: Any) -> bool:
    """Return whether a variable has an array of its own.

    A copy that NNX makes, as for `nnx.jit`, is empty first, or has a traced value. It
    passes values on, with their gradients.
    """
    try:
        value = slot.__get__(variable)
    except AttributeError:
        return False
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
