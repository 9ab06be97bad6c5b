"""What scopes, gradient tapes and checkpoints do with Keras: the hooks of the library.

A program may have loaded Keras without using it, as TensorFlow does. So with a Keras
that cannot be distributed a scope opens, and variables are refused in it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, final

import keras

from unisono._src.foundation import ambient, library_hooks
from unisono._src.integrations import attribute_patches
from unisono._src.integrations.keras import (
    adoption,
    backend_choice,
    internals,
    patches,
    recognition,
    saving,
    strategy_distribution,
    training,
    variables,
)
from unisono._src.integrations.keras.strategy_distribution import StrategyDistribution

if TYPE_CHECKING:
    from unisono._src.strategies.base import Strategy


@final
class _KerasScope:
    """A context manager that patches Keras and makes the strategy its distribution.

    It may be entered again while it is open, and in several threads. Keras has a
    current distribution per thread, so the distribution of the strategy remembers the
    one that it replaces, and how many blocks are open.
    """

    def __enter__(self) -> None:
        recognition.install()
        # First, because this may raise: a Keras to come may lack a name.
        of_variables, of_scopes = patches.of_variables(), patches.of_scopes()
        placement = ambient.current().placement
        outer = keras.distribution.distribution()
        found = outer if isinstance(outer, StrategyDistribution) else None
        if found is None and outer is not None and placement is not None:
            strategy_distribution.check_alone()
        # The default strategy places nothing, so a distribution of the program's own
        # holds there.
        is_free = outer is None or found is not None
        if is_free and (found is None or found.placement is not placement):
            found = StrategyDistribution(placement, variables.adopt, outer=outer)
            keras.distribution.set_distribution(found)
        of_variables.__enter__()
        of_scopes.__enter__()
        if found is not None:
            found.depth += 1

    def __exit__(self, *exc: object) -> None:
        inner = keras.distribution.distribution()
        found = inner if isinstance(inner, StrategyDistribution) else None
        if found is not None:
            found.depth -= 1
        if found is None or found.depth == 0:
            adoption.note_outside_variables()
        if found is not None and found.depth == 0:
            keras.distribution.set_distribution(found.outer)
        patches.of_scopes().__exit__(*exc)
        patches.of_variables().__exit__(*exc)


def _wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of Keras variables that refuses to run in a scope."""

    @functools.wraps(original)
    def init(self: object, *args: object, **kwargs: object) -> None:
        if ambient.current().placement is not None:
            raise RuntimeError(backend_choice.find_obstacle())
        original(self, *args, **kwargs)

    return init


def _adopt(obj: object, strategy: Strategy) -> None:
    """Bring an object of Keras that was made outside every scope into a strategy.

    Raises:
        RuntimeError: models of this Keras cannot be distributed.
    """
    backend_choice.check()
    why = backend_choice.find_obstacle()
    if why is not None:
        raise RuntimeError(why)
    with strategy.scope():
        for model in adoption.adopt(obj, strategy):
            training.attach(model, strategy)


def make_hooks() -> library_hooks.LibraryHooks:
    """Return the hooks of this Keras, which may be one that cannot be distributed."""
    scope: contextlib.AbstractContextManager[None] = _KerasScope()
    tape: contextlib.AbstractContextManager[None] = patches.of_variables()
    introduce: Callable[[], None] | None = recognition.install
    if backend_choice.find_obstacle() is not None:
        refusal = (keras.Variable, "__init__", _wrap_init)
        scope = attribute_patches.Patches([refusal])
        tape, introduce = contextlib.nullcontext(), None
    threads = internals.thread_locals()
    return library_hooks.LibraryHooks(
        scope, tape, saving.STATE_FINDER, threads, introduce, _adopt
    )


HOOKS = make_hooks()
