"""The patches of Keras that hold while a scope is open."""

from __future__ import annotations

import functools
from typing import Any, final

import keras
from keras.src import backend, ops
from keras.src.backend.jax import trainer
from keras.src.callbacks import callback_list
from keras.src.layers.rnn import rnn
from keras.src.optimizers import base_optimizer, loss_scale_optimizer, nadam
from keras.src.random import seed_generator

from unisono._src.foundation import ambient
from unisono._src.integrations import attribute_patches, replica_draws
from unisono._src.integrations.keras import (
    adoption,
    optimizers,
    positions,
    random,
    stops,
    strategy_distribution,
    tapes,
    training,
    variables,
)


def _wrap_value(original: property) -> property:
    return tapes.wrap_value(adoption.wrap_value(original))


def _optimizer_patches() -> list[Any]:
    base, scaled = base_optimizer.BaseOptimizer, loss_scale_optimizer.LossScaleOptimizer
    return [
        (base, "__init__", optimizers.wrap_init),
        (base, "add_variable", optimizers.wrap_add_variable),
        (base, "add_variable_from_reference", optimizers.wrap_add_from_reference),
        # It makes a number of its own, without `add_variable`.
        (nadam.Nadam, "build", optimizers.wrap_init),
        (base, "apply", optimizers.wrap_apply),
        (scaled, "apply", optimizers.wrap_apply),
        (ops, "cond", optimizers.wrap_cond),
    ]


@functools.cache
def _patches() -> attribute_patches.Patches:
    loops = [(trainer.JAXTrainer, name, training.wrap_loop) for name in training.LOOPS]
    # Variables go through the state frame; models remember their strategy, and keep the
    # state of their latest step; batches are laid out one by one, and steps counted on
    # after a restart; workers stop together; optimizers sum gradients; and random
    # numbers differ between replicas. Most of these names of Keras are private. They
    # are the same from the oldest version on that `scope` accepts.
    return attribute_patches.Patches(
        [
            (backend.Variable, "__init__", variables.wrap_init),
            (backend.Variable, "value", _wrap_value),
            (backend.Variable, "_direct_assign", tapes.wrap_assign),
            (trainer.JAXTrainer, "__init__", training.wrap_init),
            (trainer.JAXTrainer, "_make_function", training.wrap_make_function),
            (trainer.JAXTrainer, "jax_state_sync", training.wrap_state_sync),
            *loops,
            (
                trainer.JAXEpochIterator,
                "_get_distributed_iterator",
                training.wrap_batch_iterator,
            ),
            (
                trainer.JAXEpochIterator,
                "_enumerate_iterator",
                positions.wrap_enumerate,
            ),
            (
                callback_list.CallbackList,
                "on_train_batch_end",
                stops.wrap_batch_end,
            ),
            (callback_list.CallbackList, "on_epoch_end", stops.wrap_epoch_end),
            *_optimizer_patches(),
            (seed_generator.SeedGenerator, "next", replica_draws.wrap_next_key),
            (seed_generator, "global_seed_generator", random.wrap_global_generator),
            (rnn.RNN, "call", random.wrap_recurrent_call),
        ]
    )


@final
class _PatchedKerasScope:
    """A context manager that patches Keras and makes the strategy its distribution.

    It may be entered again while it is open, and in several threads. Keras has a
    current distribution per thread, so the distribution of the strategy remembers the
    one that it replaces, and how many blocks are open.
    """

    def __enter__(self) -> None:
        placement = ambient.current().placement
        found = strategy_distribution.current()
        if placement is not None:
            strategy_distribution.check_alone()
        outer = keras.distribution.distribution()
        is_outer_own = found is None and outer is not None
        # The default strategy places nothing, so a distribution of the program's own
        # holds there.
        if not is_outer_own and (found is None or found.placement is not placement):
            found = strategy_distribution.StrategyDistribution(
                placement, variables.adopt, outer=outer
            )
            keras.distribution.set_distribution(found)
        _patches().__enter__()
        if found is not None:
            found.depth += 1

    def __exit__(self, *exc: Any) -> None:
        found = strategy_distribution.current()
        if found is not None:
            found.depth -= 1
        if found is None or found.depth == 0:
            adoption.note_outside_variables()
        if found is not None and found.depth == 0:
            keras.distribution.set_distribution(found.outer)
        _patches().__exit__(*exc)


SCOPE = _PatchedKerasScope()


@final
class _PatchedTape:
    """A context manager that lets gradient tapes follow variables made outside scopes.

    The patches are those of scopes, counted together: two sets of patches of the same
    attributes, in several threads, would undo each other.
    """

    def __enter__(self) -> None:
        _patches().__enter__()

    def __exit__(self, *exc: Any) -> None:
        _patches().__exit__(*exc)


TAPE = _PatchedTape()
