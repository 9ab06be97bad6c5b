"""Makes Keras recognize datasets and metrics of unisono, inside scopes and outside.

Without a scope nothing of Keras is patched, but `fit` of a `unisono.data.Dataset` works
there, too. So these two functions are replaced for good, as soon as a program makes the
first dataset or metric, or enters the first scope. Given nothing of unisono they do
what they did.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import keras
from keras.src import tree
from keras.src.trainers import data_adapters, trainer

from unisono._src.foundation import ambient
from unisono._src.integrations import attribute_patches
from unisono._src.integrations.keras import adoption, inputs
from unisono._src.training import metrics


def _wrap_compile(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `compile` that refuses metrics of unisono and warns of lost scopes."""

    @functools.wraps(original)
    def compile_model(self: Any, *args: Any, **kwargs: Any) -> None:
        for given in tree.flatten((args, kwargs)):
            if isinstance(given, metrics.Metric):
                _refuse(given)
        _warn_of_scope(self)
        original(self, *args, **kwargs)

    return compile_model


def _refuse(metric: metrics.Metric) -> None:
    """Raise, because Keras cannot compute with a metric that is not its own."""
    name = type(metric).__name__
    hint = f"keras.metrics.{name}" if hasattr(keras.metrics, name) else "keras.metrics"
    raise TypeError(
        f"`compile` takes metrics of Keras, received unisono.metrics.{name} "
        f"({metric.name!r}), which is for loops of one's own. Write {hint} instead."
    )


def _warn_of_scope(model: Any) -> None:
    """Warn if a model of no strategy is compiled in a scope."""
    strategy = ambient.current().strategy
    if strategy is None or adoption.STRATEGY in model.__dict__:
        return
    warnings.warn(
        f"The model {model.name!r} was made outside the scope of {strategy!r} and is "
        "compiled inside it: it will train on one device. Make it inside `with "
        "strategy.scope():`, or bring it in before with strategy.adopt(model).",
        stacklevel=3,
    )


def install() -> None:
    """Replace the two functions; call it once."""
    attribute_patches.Patches(
        [
            (data_adapters, "get_data_adapter", inputs.wrap_get_data_adapter),
            (trainer.Trainer, "compile", _wrap_compile),
        ]
    ).__enter__()
