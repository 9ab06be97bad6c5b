"""The seed generator that all of Keras' random functions share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from unisono._src.foundation import ambient


def shared(original: Callable[[], Any]) -> Callable[[], Any]:
    """`global_seed_generator`, which outlives every scope and belongs to none."""

    @functools.wraps(original)
    def find() -> Any:
        scope = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            with ambient.pushed(strategy=None, placement=None):
                return original()
        finally:
            keras.distribution.set_distribution(scope)

    return find
