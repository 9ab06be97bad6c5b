"""What is replaced in Keras while a scope or a gradient tape is open, and by what.

Keras' classes are replaced for the whole process. A replacement asks the frame of its
thread whether to act, so that a thread with neither a scope nor a tape meets Keras as
it is. Most of these attributes are private; all are there from Keras 3.13 on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from unisono._src.execution import conversion
from unisono._src.foundation import ambient
from unisono._src.integrations import attribute_patches, replica_draws
from unisono._src.integrations.attribute_patches import Patch
from unisono._src.integrations.keras import (
    adoption,
    internals,
    optimizers,
    positions,
    stops,
    training,
    variables,
)

# Through it every layer calls its `call`.
_CALL = "inject_argument_info_in_traceback"


@functools.cache
def of_variables() -> attribute_patches.Patches:
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
def of_scopes() -> attribute_patches.Patches:
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
