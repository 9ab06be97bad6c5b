"""Calls the user's functions with those of the arguments that they take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from unisono._src.estimator.config import RunConfig
from unisono._src.estimator.estimator_spec import EstimatorSpec

if TYPE_CHECKING:
    # Named in signatures only: the input modules are loaded when a program reads data.
    from unisono._src.input.distribution.input_options import InputContext

_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config")


def argument_names(fn: Callable[..., object]) -> set[str]:
    """Returns the names of a function's parameters.

    Arguments that a `functools.partial` has bound by name are left out.
    """
    bound = fn.keywords if isinstance(fn, functools.partial) else {}
    return {
        name
        for name, p in inspect.signature(fn).parameters.items()
        if p.kind is not p.VAR_KEYWORD and name not in bound
    }


def check_model_fn(model_fn: object, params: object) -> None:
    """Raises unless `model_fn` is a function that an estimator can call.

    Raises:
        ValueError: `model_fn` is not a function, takes no ``features``, takes an
            argument that an estimator does not pass, or takes no ``params`` although
            `params` are given.
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
    model_fn: Callable[..., object],
    batch: object,
    mode: str,
    params: Mapping[str, Any],
    config: RunConfig,
    has_labels: bool,
) -> EstimatorSpec:
    """Calls a model function for one batch and returns its `EstimatorSpec`.

    Args:
        model_fn: the model function.
        batch: an element of the input function's dataset.
        mode: one of `ModeKeys`.
        params: the parameters of the estimator.
        config: the configuration of the estimator.
        has_labels: whether to pass the labels of the batch; if not, the model function
            gets None in their place.

    Raises:
        ValueError: the batch has labels and the model function takes none, or the model
            function does not return an `EstimatorSpec` of this mode.
    """
    features, labels = features_and_labels(batch)
    names = argument_names(model_fn)
    given: dict[str, Any] = {"mode": mode, "params": dict(params), "config": config}
    given = {k: v for k, v in given.items() if k in names}
    if "labels" in names:
        # A dataset of training may be used to predict; its labels are left out.
        given["labels"] = labels if has_labels else None
    elif labels is not None and has_labels:
        raise ValueError(
            f"model_fn ({model_fn}) does not take labels, but input_fn returns labels. "
            "Give model_fn an argument `labels`, or let input_fn return features alone."
        )
    spec = model_fn(features=features, **given)
    if not isinstance(spec, EstimatorSpec):
        raise ValueError(
            f"model_fn should return an EstimatorSpec, received {type(spec).__name__}."
        )
    if spec.mode != mode:
        raise ValueError(
            f"model_fn was called for the mode {mode!r} and returned an EstimatorSpec "
            f"of {spec.mode!r}. Pass the mode on: EstimatorSpec(mode, …)."
        )
    return spec


def features_and_labels(batch: object) -> tuple[object, object]:
    """Splits an element of a dataset into features and labels.

    Returns:
        The features and the labels; the labels are None if the element has none.

    Raises:
        ValueError: the element is a tuple that does not have two parts.
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
    input_fn: object,
    mode: str,
    params: Mapping[str, Any],
    config: RunConfig,
    input_context: InputContext,
) -> object:
    """Calls an input function and returns its dataset.

    Raises:
        TypeError: the input function is not callable or does not return a dataset.
    """
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn!r}.")
    names = argument_names(input_fn)
    given = {
        "mode": mode,
        "params": dict(params),
        "config": config,
        "input_context": input_context,
    }
    made = input_fn(**{k: v for k, v in given.items() if k in names})
    # A tuple or an array can be iterated over too, but its rows are not batches.
    if isinstance(made, tuple | dict | list) or hasattr(made, "shape"):
        raise TypeError(
            "input_fn must return a dataset or a loader, whose elements are batches; "
            f"received {type(made).__name__}. Make one of arrays: "
            "unisono.data.Dataset.from_tensor_slices(arrays).batch(size)."
        )
    return made
