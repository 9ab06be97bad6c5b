"""Random state that Keras keeps beside its variables."""

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


def wrap_recurrent_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `call` of recurrent layers that forgets dropout masks when it fails.

    Such a layer keeps its masks during a call, and forgets them at the end. A trace
    that is given up, to be repeated, would leave its masks to the next one.
    """

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except BaseException:  # A trace is given up by a signal, which is no error.
            self._maybe_reset_dropout_masks(self.cell)
            raise

    return call
