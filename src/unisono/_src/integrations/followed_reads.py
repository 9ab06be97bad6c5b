"""Reads of other libraries' variables, made outside every scope, by gradient tapes."""

from __future__ import annotations

from typing import Any

import jax

from unisono._src.foundation import ambient, library_hooks
from unisono._src.values import jax_tapes


def follow(
    tape: jax_tapes.Recording, variable: Any, raw: Any, is_trainable: bool
) -> Any:
    """Return the array of a variable so that open tapes follow it.

    Args:
        tape: the innermost tape.
        variable: the variable.
        raw: its array.
        is_trainable: whether it is followed without `watch`.
    """
    # A tracer is a value that the library passes on, which tapes follow already.
    if not isinstance(raw, jax.Array) or isinstance(raw, jax.core.Tracer):
        return raw
    with ambient.push(tape=None):  # What is asked for may read the variable.
        key = library_hooks.find_state(variable)
    tapes = [tape]
    while tapes[-1].outer is not None:
        tapes.append(tapes[-1].outer)
    # From the outermost on: an inner tape follows what the outer one has made of it.
    for each in reversed(tapes):
        raw = each.follow(key, raw, variable, is_trainable)
    return raw
