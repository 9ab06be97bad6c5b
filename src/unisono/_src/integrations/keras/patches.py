"""What a scope replaces in Keras, and puts back when it is left."""

from __future__ import annotations

import functools
from typing import Any, final

import keras
from keras.src import backend
from keras.src.backend.jax import trainer
from keras.src.optimizers import base_optimizer, loss_scale_optimizer
from keras.src.random import seed_generator

from unisono._src.foundation import ambient
from unisono._src.integrations import attribute_patches, replica_draws
from unisono._src.integrations.keras import (
    optimizers,
    positions,
    random,
    strategy_distribution,
    training,
    variables,
)


@functools.cache
def _patches() -> attribute_patches.Patches:
    loops = [(trainer.JAXTrainer, name, training.looping) for name in training.LOOPS]
    return attribute_patches.Patches(
        [
            (backend.Variable, "__init__", variables.creating),
            (backend.Variable, "value", variables.reading),
            (trainer.JAXTrainer, "__init__", training.creating),
            (trainer.JAXTrainer, "_make_function", training.stepping),
            (trainer.JAXTrainer, "jax_state_sync", training.syncing),
            *loops,
            (
                trainer.JAXEpochIterator,
                "_get_distributed_iterator",
                training.iterating,
            ),
            (
                trainer.JAXEpochIterator,
                "_enumerate_iterator",
                positions.enumerating,
            ),
            (base_optimizer.BaseOptimizer, "apply", optimizers.applying),
            (
                loss_scale_optimizer.LossScaleOptimizer,
                "apply",
                optimizers.applying,
            ),
            (seed_generator.SeedGenerator, "next", replica_draws.drawing),
            (seed_generator, "global_seed_generator", random.shared),
        ]
    )


@final
class _Scope:
    """Context manager; may be entered again and again, in several threads.

    Keras keeps the current distribution per thread, so what was there before is kept
    in the distribution that takes its place.
    """

    def __enter__(self) -> None:
        placement = ambient.current().placement
        found = strategy_distribution.current()
        if found is None or found.placement is not placement:
            outer = keras.distribution.distribution()
            found = strategy_distribution.StrategyDistribution(
                placement, variables.adopt, outer=outer
            )
            keras.distribution.set_distribution(found)
        _patches().__enter__()
        found.depth += 1

    def __exit__(self, *exc: Any) -> None:
        found = strategy_distribution.current()
        if found is not None:
            found.depth -= 1
            if found.depth == 0:
                keras.distribution.set_distribution(found.outer)
        _patches().__exit__(*exc)


SCOPE = _Scope()
