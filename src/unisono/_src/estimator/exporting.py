"""Exports the model of an estimator."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, final

import jax

from unisono._src.estimator.compiled_steps import Prediction
from unisono._src.execution import function, specs
from unisono._src.foundation import nest
from unisono._src.saving.checkpoint import worker_meeting
from unisono._src.saving.checkpoint.module import Module
from unisono._src.saving.export import saver
from unisono._src.state.variables import Variable


@dataclasses.dataclass(frozen=True)
class ServingInputReceiver:
    """Describes the inputs of an exported model.

    Args:
        features: a `TensorSpec` or a dict of them.
        receiver_tensors: accepted and ignored; the model receives the features.

    Raises:
        TypeError: a feature is not a `TensorSpec`.

    >>> import unisono as uni
    >>> features = {"x": uni.TensorSpec((None, 3), "float32")}
    >>> uni.estimator.export.ServingInputReceiver(features).features["x"].shape
    TensorShape([None, 3])
    """

    features: Any
    receiver_tensors: Any = None

    def __post_init__(self) -> None:
        for spec in nest.leaves(self.features):
            if not isinstance(spec, specs.TensorSpec):
                raise TypeError(
                    "The features of a ServingInputReceiver must be TensorSpecs, "
                    f"received {spec!r}. Pass unisono.TensorSpec(shape, dtype), or "
                    "pass arrays to build_raw_serving_input_receiver_fn."
                )


def build_raw_serving_input_receiver_fn(
    features: object, default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Returns a `serving_input_receiver_fn` for the features of a model function.

    Args:
        features: an array or `TensorSpec` with the batch as first axis, or a dict of
            them; only their shapes and dtypes are used.
        default_batch_size: the size of a batch; by default any size.

    >>> import numpy as np
    >>> fn = build_raw_serving_input_receiver_fn({"x": np.zeros((1, 3), "float32")})
    >>> fn().features["x"].shape
    TensorShape([None, 3])
    """

    def leaf(x: jax.Array | specs.TensorSpec) -> specs.TensorSpec:
        shape = tuple(x.shape)
        return specs.TensorSpec((default_batch_size, *shape[1:]), x.dtype)

    made = nest.map_structure(leaf, features)
    return lambda: ServingInputReceiver(made)


@final
class ExportedModel(Module):
    """Holds the variables of an exported model by name.

    Args:
        variables: the variables by name.
    """

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        super().__init__()
        self.variables_by_name = dict(variables)


def export(built: Prediction, receiver: ServingInputReceiver, base: str) -> str:
    """Saves a model for prediction; every worker must call this.

    Args:
        built: the `compiled_steps.Prediction` of the model.
        receiver: the inputs of the exported model.
        base: the directory in which to make the directory of the model.

    Returns:
        The directory of the model, whose name the chief chooses.
    """
    name = worker_meeting.ask_chief(
        "a choice of the directory of an exported model", lambda: _free_name(base)
    )
    path = os.path.join(base, name)
    signatures = {
        name: function.Function(_make_signature(built, name), [receiver.features])
        # `serving_default` may be among the names that the model function gives.
        for name in dict.fromkeys(built.outputs)
    }
    saver.save(ExportedModel(built.store.variables), path, signatures)
    return path


def _make_signature(built: Prediction, name: str) -> Callable[[object], object]:
    def serve(features: object) -> object:
        return built.signature_outputs(features)[name]

    return serve


def _free_name(base: str) -> str:
    # TensorFlow Serving's convention: the name is a number, and the largest is served.
    stamp = int(time.time())
    while os.path.exists(os.path.join(base, str(stamp))):
        stamp += 1
    return str(stamp)
