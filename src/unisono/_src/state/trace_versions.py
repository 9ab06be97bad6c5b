"""Keeping JAX's caches apart from variables.

JAX remembers the traces of functions it is given (by `jax.jit`, `lax.scan`,
`jax.checkpoint` …) and does not know that they read variables. A body that reads one
is therefore traced under a version that changes when variables do, which JAX takes for
another function. Only in a `jax.jit` outside any program there is no right way: it
would have to be compiled again after every step. Reading is refused there.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, final

import jax

from unisono._src.foundation import errors
from unisono._src.values import collectives

# JAX's own context manager restores what was before it; versions must not come back.
_setting = jax.make_user_context(default_value=0)._obj
_numbers = itertools.count(1)


class NeedsVersions(errors.Signal):
    """A body that JAX traces by itself reads a variable: trace again, with versions."""


@final
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


@final
class _Eager:
    """The version of code that runs outside programs, in every thread.

    It changes only after a body that JAX remembers has read a variable: a new version
    makes JAX compile everything again.
    """

    # Since the version changed last; before that there is nothing to keep apart.
    has_read = False

    def note(self) -> None:
        """A body that JAX remembers has read a variable."""
        self.has_read = True

    def changed(self) -> None:
        """A variable has changed."""
        if self.has_read:
            self.has_read = False
            _setting.set_global(next(_numbers))

    @contextlib.contextmanager
    def apart(self, is_compiled: bool = False) -> Iterator[None]:
        """A block in which variables look different than around it."""
        if not is_compiled:
            self.changed()
        try:
            yield
        finally:
            if not is_compiled:
                self.changed()


EAGER = _Eager()
NONE = Versions(are_needed=False)


def check_reading(traces: tuple[Any, ...], found: Versions, name: str) -> None:
    """Take note if the running code is in a body that JAX traces by itself.

    Args:
        traces: the traces of the program being made; none outside programs.
        found: the versions of that program.
        name: of the variable that is read.

    Raises:
        NeedsVersions: the program has none yet.
        RuntimeError: in a `jax.jit` outside any program.
    """
    where = collectives.reading_trace()
    if collectives.is_eager(where) or any(where is t for t in traces):
        return
    if traces:
        if not found.are_needed:
            raise NeedsVersions
        return
    EAGER.note()
    if collectives.is_for_jit(where):
        raise RuntimeError(
            f"The variable '{name}' was read inside a function given to jax.jit, "
            "outside unisono.function. JAX would keep the value of this moment for "
            "ever. Use unisono.function instead of jax.jit, or read the variable "
            "outside and pass its value in."
        )
