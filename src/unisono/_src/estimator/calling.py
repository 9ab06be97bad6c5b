"""Calling the user's functions with the arguments that they take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from unisono._src.estimator.config import RunConfig
from unisono._src.estimator.estimator_spec import EstimatorSpec

_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config")


def argument_names(fn: Callable[..., Any]) -> set[str]:
    """The names of a function's parameters; those of a partial are bound."""
    bound = fn.keywords if isinstance(fn, functools.partial) else {}
    return {
        name
        for name, p in inspect.signature(fn).parameters.items()
        if p.kind is not p.VAR_KEYWORD and name not in bound
    }


def check_model_fn(model_fn: Any, params: Any) -> None:
    """Raise unless a model function can be called.

    Raises:
        ValueError: it is none, or takes other arguments.
    """
    if not callable(model_fn):
        raise ValueError(f"model_fn must be a function, received {model_fn!r}.")
    names = argument_names(model_fn)
    if "features" not in names:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params "
            f"({params}) is passed to Estimator."
        )
    strange = sorted(names - set(_MODEL_ARGUMENTS))
    if strange:
        raise ValueError(
            f"model_fn ({model_fn}) has following not expected args: {strange}; it may "
            f"take {', '.join(_MODEL_ARGUMENTS)}."
        )


def call_model_fn(
    model_fn: Callable[..., Any],
    batch: Any,
    mode: str,
    params: Mapping[str, Any],
    config: RunConfig,
    has_labels: bool,
) -> EstimatorSpec:
    """What a model function says of a batch.

    Args:
        model_fn: the function.
        batch: an element of the input function's dataset.
        mode: one of `ModeKeys`.
        params: the estimator's.
        config: the estimator's.
        has_labels: whether labels are given to it, if there are any.

    Raises:
        ValueError: it takes no labels, but there are some; or it returns something
            else than an `EstimatorSpec` of the mode.
    """
    features, labels = features_and_labels(batch)
    names = argument_names(model_fn)
    given: dict[str, Any] = {"mode": mode, "params": dict(params), "config": config}
    given = {k: v for k, v in given.items() if k in names}
    if "labels" in names:
        given["labels"] = labels if has_labels else None
    elif labels is not None and has_labels:
        raise ValueError(
            f"model_fn ({model_fn}) does not take labels, but input_fn returns labels."
        )
    spec = model_fn(features=features, **given)
    if not isinstance(spec, EstimatorSpec):
        raise ValueError(
            f"model_fn should return an EstimatorSpec, received {type(spec).__name__}."
        )
    if spec.mode != mode:
        raise ValueError(
            f"model_fn was called for the mode {mode!r} and returned an EstimatorSpec "
            f"of {spec.mode!r}."
        )
    return spec


def features_and_labels(batch: Any) -> tuple[Any, Any]:
    """The two parts of an element; labels may be missing.

    Raises:
        ValueError: a tuple of another length.
    """
    if isinstance(batch, tuple | list):
        if len(batch) != 2:
            raise ValueError(
                "The dataset of input_fn should have elements (features, labels), or "
                f"features alone; received a tuple of {len(batch)}."
            )
        return batch[0], batch[1]
    return batch, None


def call_input_fn(
    input_fn: Any, mode: str, params: Any, config: RunConfig, input_context: Any
) -> Any:
    """The dataset of an input function.

    Raises:
        ValueError: it is no function.
        TypeError: it returns no dataset.
    """
    names = argument_names(input_fn)
    given = {
        "mode": mode,
        "params": dict(params),
        "config": config,
        "input_context": input_context,
    }
    made = input_fn(**{k: v for k, v in given.items() if k in names})
    if isinstance(made, tuple | dict | list) or hasattr(made, "shape"):
        raise TypeError(
            "input_fn must return a dataset or a loader, whose elements are batches; "
            f"received {type(made).__name__}. Make one of arrays: "
            "unisono.data.Dataset.from_tensor_slices(arrays).batch(size)."
        )
    return made
