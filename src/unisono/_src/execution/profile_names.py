"""Names of compiled functions in profiles.

While a profile is taken, every call of a program is a step of its function's name and
number. At other times programs are called as they are: they are wrapped when a profile
starts and unwrapped when it stops, so that a call has nothing to ask.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, final

import jax

_programs: weakref.WeakSet[Any] = weakref.WeakSet()


@final
class _Profile:
    """Whether one is being taken, and how many calls it has seen."""

    is_on = False
    outer_steps = 0
    counts: ClassVar[collections.Counter[str]] = collections.Counter()


def named(evaluate: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function under the user's name for it, which programs and profiles show."""

    def named(donated: Any, kept: Any, leaves: Any) -> Any:
        return evaluate(donated, kept, leaves)

    named.__name__ = named.__qualname__ = name
    return named


@final
class Annotated:
    """A program's call, under its name.

    Args:
        name: that of the function.
        plain: the call.
    """

    def __init__(self, name: str, plain: Callable[[list[Any]], Any]) -> None:
        self.name = name
        self.plain = plain

    def __call__(self, leaves: list[Any]) -> Any:
        """Call it as one step."""
        number = _Profile.counts[self.name]
        _Profile.counts[self.name] += 1
        # Inside a step of the user's own, that one is the step.
        kind: Any = (
            jax.profiler.TraceAnnotation
            if _Profile.outer_steps
            else jax.profiler.StepTraceAnnotation
        )
        try:
            with kind(self.name, step_num=number):
                return self.plain(leaves)
        except BaseException:
            # It was no step: it failed, or another program must be found.
            _Profile.counts[self.name] -= 1
            raise


def watch(program: Any) -> None:
    """Let a program, which has `name` and `call`, be seen in profiles."""
    _programs.add(program)
    if _Profile.is_on:
        program.call = Annotated(program.name, program.call)


def start() -> None:
    """A profile is taken from now on."""
    _Profile.is_on = True
    _Profile.counts = collections.Counter()
    for program in list(_programs):
        if not isinstance(program.call, Annotated):
            program.call = Annotated(program.name, program.call)


def stop() -> None:
    """It is over."""
    _Profile.is_on = False
    for program in list(_programs):
        if isinstance(program.call, Annotated):
            program.call = program.call.plain


def enter_step(change: int) -> None:
    """Count the steps of the user's own that are open."""
    _Profile.outer_steps += change
