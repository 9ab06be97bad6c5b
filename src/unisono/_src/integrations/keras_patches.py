"""What a scope replaces in Keras, and puts back when it is left."""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras.src import backend
from keras.src.backend.jax import trainer
from keras.src.optimizers import base_optimizer, loss_scale_optimizer
from keras.src.random import seed_generator

from unisono._src import ambient
from unisono._src.integrations import (
    keras_distribution,
    keras_optimizers,
    keras_positions,
    keras_random,
    keras_training,
    keras_variables,
    patches,
)


@functools.cache
def _patches() -> patches.Patches:
    loops = [
        (trainer.JAXTrainer, name, keras_training.looping)
        for name in keras_training.LOOPS
    ]
    return patches.Patches(
        [
            (backend.Variable, "__init__", keras_variables.creating),
            (backend.Variable, "value", keras_variables.reading),
            (trainer.JAXTrainer, "__init__", keras_training.creating),
            (trainer.JAXTrainer, "_make_function", keras_training.stepping),
            (trainer.JAXTrainer, "jax_state_sync", keras_training.syncing),
            *loops,
            (
                trainer.JAXEpochIterator,
                "_get_distributed_iterator",
                keras_training.iterating,
            ),
            (
                trainer.JAXEpochIterator,
                "_enumerate_iterator",
                keras_positions.enumerating,
            ),
            (base_optimizer.BaseOptimizer, "apply", keras_optimizers.applying),
            (
                loss_scale_optimizer.LossScaleOptimizer,
                "apply",
                keras_optimizers.applying,
            ),
            (seed_generator.SeedGenerator, "next", keras_random.drawing),
            (seed_generator, "global_seed_generator", keras_random.shared),
        ]
    )


class _Scope:
    """Context manager; may be entered again and again, in several threads.

    Keras keeps the current distribution per thread, so what was there before is kept
    in the distribution that takes its place.
    """

    def __enter__(self) -> None:
        placement = ambient.current().placement
        found = keras_distribution.current()
        if found is None or found.placement is not placement:
            outer = keras.distribution.distribution()
            found = keras_distribution.StrategyDistribution(
                placement, keras_variables.adopt, outer=outer
            )
            keras.distribution.set_distribution(found)
        _patches().__enter__()
        found.depth += 1

    def __exit__(self, *exc: Any) -> None:
        found = keras_distribution.current()
        if found is not None:
            found.depth -= 1
            if found.depth == 0:
                keras.distribution.set_distribution(found.outer)
        _patches().__exit__(*exc)


SCOPE = _Scope()
