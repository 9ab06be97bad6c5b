"""Versions that keep JAX from reusing a trace after a variable has changed.

JAX caches the traces of functions that are given to `jax.jit`, `lax.scan`,
`jax.checkpoint` and the like, and does not know that they read variables. A function
that reads one is therefore traced under a version, which is part of the key of JAX's
caches and changes when variables do. A `jax.jit` outside any program would have to be
compiled again after every step; reading a variable there is an error. See
docs/decisions/0008.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, final

import jax

from unisono._src.foundation import ambient, errors
from unisono._src.values import jax_traces

# The private object behind the context manager: the manager restores the version that
# was set before it, and a version must never be used again. JAX 0.10 to 0.12 have it;
# without it this module cannot be imported.
_setting = jax.make_user_context(default_value=0)._obj  # noqa: SLF001
_numbers = itertools.count(1)


class NeedsVersions(errors.Signal):
    """Says that a body that JAX caches reads a variable: trace again, with versions."""


class NeedsNewTrace(errors.Signal):
    """Says that a variable was made beside the program: trace again, with it."""


@final
class Versions:
    """The versions of one program being made.

    Attributes:
        are_needed: whether bodies that JAX caches read variables. If not, the version
            stays: a new one makes JAX compile everything again.
    """

    def __init__(self, are_needed: bool) -> None:
        self.are_needed = are_needed
        self._before = _setting.get_local() if are_needed else None

    def advance(self) -> None:
        """Moves on to another version: variables have other values from here on."""
        if self.are_needed:
            # In this thread alone, which traces the program.
            _setting.set_local(next(_numbers))

    @contextlib.contextmanager
    def separate_block(self) -> Iterator[None]:
        """Gives the block a version of its own, and the code after it another one."""
        self.advance()
        try:
            yield
        finally:
            self.advance()

    def close(self) -> None:
        """Goes back to the version that was set before the program."""
        _setting.set_local(self._before)


@final
class _Eager:
    """The version of code that runs outside programs, in every thread.

    It changes only if a body that JAX caches has read a variable since it changed last:
    a new version makes JAX compile everything again.

    Attributes:
        has_read: whether there was such a body.
    """

    has_read = False

    def note_read(self) -> None:
        """Notes that a body that JAX caches has read a variable."""
        self.has_read = True

    def note_change(self) -> None:
        """Notes that a variable has changed."""
        if self.has_read:
            self.has_read = False
            # In all threads: a body that one of them has traced may be used by another.
            _setting.set_global(next(_numbers))

    @contextlib.contextmanager
    def separate_block(self, is_compiled: bool = False) -> Iterator[None]:
        """Gives the block another version than the code around it.

        Args:
            is_compiled: whether a program is being made, which has its own versions.
        """
        if not is_compiled:
            self.note_change()
        try:
            yield
        finally:
            if not is_compiled:
                self.note_change()


EAGER = _Eager()
NONE = Versions(are_needed=False)


@final
class _BegunTrace(ambient.PerThread):
    """The trace that `traced_once` has begun, in each thread."""

    trace: Any = None


_once = _BegunTrace()


@contextlib.contextmanager
def traced_once() -> Iterator[None]:
    """Lets the block read variables, though it is the body of a trace by JAX.

    The function being traced must be a new one at every call, so that JAX has no trace
    of it to use again.
    """
    before, _once.trace = _once.trace, jax_traces.reading_trace()
    try:
        yield
    finally:
        _once.trace = before


def check_reading(traces: tuple[Any, ...], found: Versions, name: str) -> None:
    """Notes that the running code reads a variable, if JAX will cache that code.

    Args:
        traces: the traces of the program being made; none outside programs.
        found: the versions of that program.
        name: the name of the variable, for messages.

    Raises:
        NeedsVersions: the program needs versions and is traced without them.
        RuntimeError: the code is in a `jax.jit` outside any program.
    """
    # Allowed are code that runs at once, code at the level of the program itself, and a
    # body that JAX traces for a single use.
    where = jax_traces.reading_trace()
    if jax_traces.is_eager(where) or any(where is t for t in traces):
        return
    if where is _once.trace:
        return
    if traces:
        if not found.are_needed:
            raise NeedsVersions
        return
    EAGER.note_read()
    if jax_traces.is_for_jit(where):
        raise RuntimeError(
            f"The variable '{name}' was read inside a function given to jax.jit, "
            "outside unisono.function. JAX would use its present value in all later "
            "calls. Use unisono.function instead of jax.jit, or read the variable "
            "outside and pass its value in. In a layer that Keras' fit runs, make it "
            "with self.add_weight instead of unisono.Variable."
        )
