"""Statements on arrays in layers, which Keras' own steps do not convert.

Nor do they with TensorFlow. Keras makes a new error of one that a layer raises, from a
text, which JAX' errors cannot be made from: the user would see that instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from unisono._src.execution import traced_values
from unisono._src.state import frames, trace_versions

_ADVICE = (
    "Keras' own steps convert no statements on arrays, nor do they with TensorFlow. A "
    "layer with such statements runs in a unisono.function, and in the "
    "train_step(self, data) of a model."
)


def wrap_spec(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `compute_output_spec` that tells which statement needs a value.

    A layer may read variables of unisono meanwhile: only the result's shape counts.
    """

    @functools.wraps(original)
    def compute(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def reading(*given: Any, **named: Any) -> Any:
            with trace_versions.traced_once():
                return fn(*given, **named)

        return original(_explain(functools.wraps(fn)(reading)), *args, **kwargs)

    return compute


def wrap_layer_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs a `call`, and tells which statement needs a value."""

    @functools.wraps(original)
    def inject(fn: Callable[..., Any], object_name: str | None = None) -> Any:
        return original(_explain(fn), object_name)

    return inject


def _explain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `call` of a layer with an error in the user's terms."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with traced_values.explain():
                return fn(*args, **kwargs)
        except traced_values.OperatorNotAllowedInGraphError as error:
            if _ADVICE in str(error) or frames.outermost().is_compiled:
                raise
            told = f"{error}\n{_ADVICE}"
            raise traced_values.OperatorNotAllowedInGraphError(told) from error

    return call
