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
import numpy as np
from keras.src import tree
from keras.src.trainers import data_adapters, trainer

from unisono._src.foundation import ambient
from unisono._src.integrations import attribute_patches
from unisono._src.integrations.keras import adoption, inputs
from unisono._src.training import metrics


def _wrap_compile(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `compile` that takes metrics of unisono and warns of lost scopes."""

    @functools.wraps(original)
    def compile_model(self: Any, *args: Any, **kwargs: Any) -> None:
        if any(isinstance(x, metrics.Metric) for x in tree.flatten((args, kwargs))):
            args, kwargs = tree.map_structure(_translate, (args, kwargs))
        _warn_of_scope(self)
        original(self, *args, **kwargs)

    return compile_model


def _translate(given: Any) -> Any:
    """Return Keras' metric for one of unisono, and anything else as it is.

    In TensorFlow ``tf.metrics`` are metrics of Keras.

    Raises:
        TypeError: Keras has no such metric.
    """
    if not isinstance(given, metrics.Metric):
        return given
    kind, options = metrics.describe(given)
    if kind is None:
        raise TypeError(
            f"`compile` takes metrics of Keras, received {given.name!r} of the class "
            f"unisono.metrics.{type(given).__name__}, which is for loops of one's own. "
            "Write one of keras.metrics instead."
        )
    made = getattr(keras.metrics, kind)
    return made(name=given.name, dtype=np.dtype(given.dtype).name, **options)


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
