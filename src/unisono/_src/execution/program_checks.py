"""What a program has Python do while it runs: conditions to check, and other calls.

A callback notes a failure; `program_calls` raises it when the call is over and stores
none of its results. See `program_calls.CallbackCall`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, final

import jax
import numpy as np

from unisono._src.foundation import ambient
from unisono._src.state import frames
from unisono._src.values import jax_traces

_log = logging.getLogger("unisono")


@final
class _Notes:
    """Failures found by callbacks since the last call began, and texts told."""

    # With the numbers of the checks: XLA may run them in another order.
    failures: ClassVar[list[tuple[int, Exception]]] = []
    numbers: ClassVar[itertools.count[int]] = itertools.count()
    told: ClassVar[set[str]] = set()


def clear() -> None:
    """Forget failures of earlier calls, which nobody has asked for."""
    _Notes.failures.clear()


def raise_failure() -> None:
    """Raise the first failure that a callback has noted, if there is one."""
    if _Notes.failures:
        first = min(_Notes.failures, key=lambda noted: noted[0])
        clear()
        raise first[1]


@final
class _Own(ambient.PerThread):
    """The failures of callbacks that this thread calls itself; None elsewhere."""

    failures: list[tuple[int, Exception]] | None = None


_own = _Own()


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Raise at the end of a block the failure that a callback in it has noted."""
    before, _own.failures = _own.failures, []
    try:
        yield
        for _, error in _own.failures:
            raise error
    finally:
        _own.failures = before


def tell_cost(name: str) -> None:
    """Say in the log, once for each name, what a call costs in a compiled step."""
    if name not in _Notes.told:
        _Notes.told.add(name)
        _log.warning(
            "unisono.%s is in a compiled step: each call of the step waits until it "
            "has run, and keeps its variables twice in memory meanwhile. Remove it "
            "when you no longer need it.",
            name,
        )


def call_each_run(
    name: str, call: Callable[..., object], arrays: Sequence[Any]
) -> None:
    """Call a Python function each time that the program being traced runs.

    What it raises is raised when the call of the program is over.

    Args:
        name: the public name that the function belongs to, for the log.
        call: the function, of NumPy arrays.
        arrays: what the program computes for it.
    """
    number = next(_Notes.numbers)

    def run(*values: object) -> None:
        try:
            call(*map(np.asarray, values))
        except Exception as error:
            _note(number, error)

    tell_cost(name)
    jax.debug.callback(run, *arrays)


def _note(number: int, error: Exception) -> None:
    """Keep the failure of a callback for who has called the program."""
    own = _own.failures
    (_Notes.failures if own is None else own).append((number, error))


def require(
    name: str, ok: Any, tell: Callable[..., Exception], arrays: Sequence[Any] = ()
) -> None:
    """Raise unless a condition holds; in a program, when it runs.

    Args:
        name: the public name of the check, for the log.
        ok: a scalar, which may be computed by a program.
        tell: returns the error, for the NumPy values of `arrays`.
        arrays: what the error tells.
    """
    ok, *values = [frames.strip_gradient(x) for x in (ok, *arrays)]
    if not any(isinstance(x, jax.core.Tracer) for x in (ok, *values)):
        if not bool(ok):
            raise tell(*map(np.asarray, values))
        return
    # Three cases are left. In a program the callback notes the failure, and the call
    # raises it. In a transformation of eager code, such as `jax.vmap`, this function
    # waits and raises. In a `jax.jit` of the user nobody else would, so the callback
    # raises.
    number = next(_Notes.numbers)
    is_program = frames.frame().is_compiled
    is_eager = jax_traces.is_eager(jax_traces.reading_trace())

    def note(ok: Any, *values: object) -> None:
        # `jax.vmap` makes both branches run.
        if not np.all(ok):
            error = tell(*map(np.asarray, values))
            if not is_program and not is_eager:
                raise error  # In a `jax.jit` of the user; JAX reports it.
            _note(number, error)

    if not is_eager:
        tell_cost(name)
    jax.lax.cond(
        ok,
        lambda *given: None,
        lambda *given: jax.debug.callback(note, *given),
        ok,
        *values,
    )
    if is_eager:
        jax.effects_barrier()
        raise_failure()
