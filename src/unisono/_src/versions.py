"""Keeping JAX's caches apart from variables.

JAX remembers the traces of functions it is given (by `jax.jit`, `lax.scan`,
`jax.checkpoint` …) and does not know that they read variables. A body that reads one
inside a program being made is traced under a version of its own, which JAX takes for
another function; outside any program there is no right way, so reading is refused.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import jax

from unisono._src import collectives, errors

# JAX's own context manager restores what was before it; versions must not come back.
_setting = jax.make_user_context(default_value=0)._obj
_numbers = itertools.count(1)


class NeedsVersions(errors.Signal):
    """A body that JAX traces by itself reads a variable: trace again, with versions."""


class Versions:
    """The versions of one program being made.

    Attributes:
        are_needed: whether bodies that JAX traces by itself read variables.
    """

    def __init__(self, are_needed: bool) -> None:
        self.are_needed = are_needed
        self._before = _setting.get_local() if are_needed else None

    def advance(self) -> None:
        """Go on with another version, because variables look different from here on."""
        if self.are_needed:
            _setting.set_local(next(_numbers))

    @contextlib.contextmanager
    def fresh(self) -> Iterator[None]:
        """Another version for a block, and yet another one after it."""
        self.advance()
        try:
            yield
        finally:
            self.advance()

    def close(self) -> None:
        """Go back to the version before the program."""
        _setting.set_local(self._before)


NONE = Versions(are_needed=False)


def check_reading(traces: tuple[Any, ...], found: Versions, name: str) -> None:
    """Raise if the running code is in a body that JAX traces by itself.

    Args:
        traces: the traces of the program being made; none outside programs.
        found: the versions of that program.
        name: of the variable that is read.
    """
    where = collectives.reading_trace()
    if collectives.is_eager(where) or any(where is t for t in traces):
        return
    if traces:
        if not found.are_needed:
            raise NeedsVersions
        return
    raise RuntimeError(
        f"The variable '{name}' was read inside a function that JAX traces by itself "
        "(given to jax.jit, jax.lax.scan, cond, while_loop or jax.checkpoint) outside "
        "unisono.function. JAX would keep the value of this moment for ever. Put the "
        "whole computation into a unisono.function, or read the variable outside and "
        "pass its value in."
    )
