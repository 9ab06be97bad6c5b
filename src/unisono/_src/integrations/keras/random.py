"""The global seed generator, which all of Keras' random functions share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from unisono._src.foundation import ambient


def wrap_global_generator(original: Callable[[], Any]) -> Callable[[], Any]:
    """Return a `global_seed_generator` whose generator belongs to no strategy.

    Keras creates the generator on first use and keeps it for the whole process, so it
    must not belong to the scope that happens to be open then.
    """

    @functools.wraps(original)
    def find() -> Any:
        scope = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            with ambient.push(strategy=None, placement=None):
                return original()
        finally:
            keras.distribution.set_distribution(scope)

    return find
