"""What scopes, gradient tapes and checkpoints do with Keras: the hooks of the library.

A program may have loaded Keras without using it, as TensorFlow does. So with a Keras
that cannot be distributed a scope opens, and variables are refused in it.

Keras' classes are replaced for the whole process. A replacement asks the frame of its
thread whether to act, so that a thread with neither a scope nor a tape meets Keras as
it is. Most of these attributes are private; all are there from Keras 3.13 on.
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
    recognition,
    saving,
    strategy_distribution,
    training,
    variables,
)
from unisono._src.integrations.keras.strategy_distribution import StrategyDistribution

if TYPE_CHECKING:
    from unisono._src.strategies.base import Strategy
from typing import Any

from unisono._src.execution import conversion
from unisono._src.integrations import replica_draws
from unisono._src.integrations.attribute_patches import Patch
from unisono._src.integrations.keras import (
    optimizers,
    positions,
    stops,
)


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
        of_variables, of_scopes = _patches_of_variables(), _patches_of_scopes()
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
        _patches_of_scopes().__exit__(*exc)
        _patches_of_variables().__exit__(*exc)


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
    tape: contextlib.AbstractContextManager[None] = _patches_of_variables()
    introduce: Callable[[], None] | None = recognition.install
    if backend_choice.find_obstacle() is not None:
        refusal = (keras.Variable, "__init__", _wrap_init)
        scope = attribute_patches.Patches([refusal])
        tape, introduce = contextlib.nullcontext(), None
    threads = internals.thread_locals()
    return library_hooks.LibraryHooks(
        scope, tape, saving.STATE_FINDER, threads, introduce, _adopt
    )


# Through it every layer calls its `call`.
_CALL = "inject_argument_info_in_traceback"


@functools.cache
def _patches_of_variables() -> attribute_patches.Patches:
    """Return what scopes and tapes need: how variables are made, read and written."""
    return attribute_patches.Patches(
        [
            (keras.Variable, "__init__", variables.wrap_init),
            (keras.Variable, "value", adoption.wrap_value),
            (keras.Variable, "_direct_assign", adoption.wrap_assign),
            # Its branches assign variables, as in an optimizer that scales losses.
            (internals.ops, "cond", optimizers.wrap_cond),
        ]
    )


@functools.cache
def _patches_of_scopes() -> attribute_patches.Patches:
    """Return what scopes need beside the patches of variables.

    Models remember their strategy, and keep the state of their latest step; batches are
    laid out one by one, and steps counted on after a restart; workers stop together;
    optimizers sum gradients; and random numbers differ between replicas.
    """
    trainer, epochs = internals.JAXTrainer, internals.JAXEpochIterator
    callbacks = keras.callbacks.CallbackList
    return attribute_patches.Patches(
        [
            (trainer, "__init__", training.wrap_init),
            (trainer, "_make_function", training.wrap_make_function),
            (trainer, "jax_state_sync", training.wrap_state_sync),
            (internals.trainer, "jit", training.wrap_jit),
            *((trainer, name, training.wrap_loop) for name in training.LOOPS),
            (epochs, "_get_distributed_iterator", training.wrap_batch_iterator),
            (epochs, "_enumerate_iterator", positions.wrap_enumerate),
            (callbacks, "on_train_batch_end", stops.wrap_batch_end),
            (callbacks, "on_epoch_end", stops.wrap_epoch_end),
            *_optimizer_patches(),
            (keras.random.SeedGenerator, "next", replica_draws.wrap_next_key),
            (internals.seed_generator, "global_seed_generator", _wrap_generator),
            (keras.layers.RNN, "call", _wrap_recurrent_call),
            (internals.traceback_utils, _CALL, _wrap_layer_call),
        ]
    )


def _optimizer_patches() -> list[Patch]:
    base, scaled = internals.BaseOptimizer, keras.optimizers.LossScaleOptimizer
    return [
        (base, "__init__", optimizers.wrap_init),
        (base, "add_variable", optimizers.wrap_add_variable),
        (base, "add_variable_from_reference", optimizers.wrap_add_from_reference),
        # It makes a number of its own, without `add_variable`.
        (keras.optimizers.Nadam, "build", optimizers.wrap_init),
        (base, "apply", optimizers.wrap_apply),
        (scaled, "apply", optimizers.wrap_apply),
    ]


def _wrap_layer_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what lets AutoGraph convert the `call` of a layer of the user's."""

    @functools.wraps(original)
    def inject(fn: Callable[..., Any], object_name: str | None = None) -> Any:
        chosen = conversion.choose(fn)
        # Keras' own would make another error of one that JAX raises.
        return original(fn, object_name) if chosen is fn else chosen

    return inject


# Random state that Keras keeps beside its variables.


def _wrap_generator(original: Callable[[], object]) -> Callable[[], object]:
    """Return a `global_seed_generator` whose generator belongs to no strategy.

    Keras creates the generator on first use and keeps it for the whole process, so it
    must not belong to the scope that happens to be open then.
    """

    @functools.wraps(original)
    def find() -> object:
        scope = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            with ambient.push(strategy=None, placement=None):
                return original()
        finally:
            keras.distribution.set_distribution(scope)

    return find


def _wrap_recurrent_call(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `call` of recurrent layers that forgets dropout masks when it fails.

    Such a layer keeps its masks during a call, and forgets them at the end. A trace
    that is given up, to be repeated, would leave its masks to the next one.
    """

    @functools.wraps(original)
    def call(self: internals.RecurrentLayer, *args: object, **kwargs: object) -> object:
        try:
            return original(self, *args, **kwargs)
        except BaseException:  # A trace is given up by a signal, which is no error.
            internals.forget_dropout_masks(self)
            raise

    return call


HOOKS = make_hooks()
