"""Shows compiled functions under their names in profiles.

While a profile is taken, every call of a program is a step with the name of its
function and a number. Programs are wrapped when a profile starts and unwrapped when it
stops, so that a call need not ask at other times whether a profile is being taken.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, final

import jax

# Weakly, so that a program can go when its function does.
_programs: weakref.WeakSet[Any] = weakref.WeakSet()


@final
class _ProfileState:
    """The state of the process's one profile.

    Attributes:
        is_on: whether a profile is being taken.
        outer_steps: how many steps that the user marked are open now.
        counts: how many calls the profile has seen, by name of the function.
    """

    is_on = False
    outer_steps = 0
    counts: ClassVar[collections.Counter[str]] = collections.Counter()


def give_name(evaluate: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that calls `evaluate` and is called `name` in XLA programs."""

    # JAX calls the program after the function, and a bound method cannot be renamed.
    def call(donated: object, kept: object, leaves: object) -> Any:
        return evaluate(donated, kept, leaves)

    call.__name__ = call.__qualname__ = name
    return call


@final
class AnnotatedCall:
    """Calls a program as one named step of a profile.

    Args:
        name: the name of the step.
        plain: the program's own call, without a profile.
    """

    def __init__(self, name: str, plain: Callable[[list[Any]], Any]) -> None:
        self.name = name
        self.plain = plain

    def __call__(self, leaves: list[Any]) -> Any:
        """Call the program, and record the call as one step."""
        number = _ProfileState.counts[self.name]
        _ProfileState.counts[self.name] += 1
        # Inside a step that the user marked, this call is a part of that step.
        kind: Any = (
            jax.profiler.TraceAnnotation
            if _ProfileState.outer_steps
            else jax.profiler.StepTraceAnnotation
        )
        try:
            with kind(self.name, step_num=number):
                return self.plain(leaves)
        except BaseException:
            # Not a step: the call failed, or the program was not made for these
            # shapes and another one will be called.
            _ProfileState.counts[self.name] -= 1
            raise


def watch(program: Any) -> None:
    """Show the calls of a program in profiles.

    Args:
        program: an object with a `name`, and a `call` that may be replaced.
    """
    _programs.add(program)
    if _ProfileState.is_on:
        program.call = AnnotatedCall(program.name, program.call)


def is_recording() -> bool:
    """Whether this process records a profile; JAX allows one at a time."""
    return _ProfileState.is_on


def start() -> None:
    """Record the calls of all programs from now on, counted from zero."""
    _ProfileState.is_on = True
    _ProfileState.counts = collections.Counter()
    for program in list(_programs):
        if not isinstance(program.call, AnnotatedCall):
            program.call = AnnotatedCall(program.name, program.call)


def stop() -> None:
    """Stop recording calls of programs."""
    _ProfileState.is_on = False
    for program in list(_programs):
        if isinstance(program.call, AnnotatedCall):
            program.call = program.call.plain


def enter_step(change: int) -> None:
    """Note that the user's program opens or closes a step of its own.

    Args:
        change: 1 when a step opens, -1 when it closes, 0 for what is no step.
    """
    _ProfileState.outer_steps += change
