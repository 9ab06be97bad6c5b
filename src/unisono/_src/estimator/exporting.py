"""Exporting the model of an estimator."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, final

from unisono._src.execution import function, specs
from unisono._src.foundation import nest
from unisono._src.foundation.public_names import publish
from unisono._src.saving.checkpoint import worker_meeting
from unisono._src.saving.checkpoint.module import Module
from unisono._src.saving.export import saver


@dataclasses.dataclass(frozen=True)
class ServingInputReceiver:
    """What an exported model takes.

    Args:
        features: a `TensorSpec`, or a dict of them.
        receiver_tensors: accepted; the features themselves are received.
    """

    features: Any
    receiver_tensors: Any = None

    def __post_init__(self) -> None:
        for spec in nest.leaves(self.features):
            if not isinstance(spec, specs.TensorSpec):
                raise TypeError(
                    "The features of a ServingInputReceiver are TensorSpecs, received "
                    f"{spec!r}."
                )


def build_raw_serving_input_receiver_fn(
    features: Any, default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A `serving_input_receiver_fn` for features as the model function takes them.

    Args:
        features: arrays or `TensorSpec`s whose shapes and types are meant, or a dict of
            them, with the batch as first axis.
        default_batch_size: the size of a batch; default any.

    >>> import numpy as np
    >>> fn = build_raw_serving_input_receiver_fn({"x": np.zeros((1, 3), "float32")})
    >>> fn().features["x"].shape
    (None, 3)
    """

    def leaf(x: Any) -> specs.TensorSpec:
        shape = tuple(x.shape)
        return specs.TensorSpec((default_batch_size, *shape[1:]), x.dtype)

    made = nest.map_structure(leaf, features)
    return lambda: ServingInputReceiver(made)


@final
class Exported(Module):
    """What is saved: the variables, by name."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        super().__init__()
        self.variables_by_name = dict(variables)


def export(built: Any, receiver: ServingInputReceiver, base: str) -> str:
    """Save a model for prediction; every worker calls this.

    Returns:
        The directory it is in: below `base`, with the name that the chief has chosen.
    """
    path = os.path.join(base, _agreed_name(base))
    signatures = {
        name: function.Function(_only(built, name), [receiver.features])
        for name in dict.fromkeys(built.outputs)
    }
    saver.save(Exported(built.store.variables), path, signatures)
    return path


def _only(built: Any, name: str) -> Callable[[Any], Any]:
    def serve(features: Any) -> Any:
        return built.exported(features)[name]

    return serve


def _agreed_name(base: str) -> str:
    """A name that is free in a directory of the chief's, the same on every worker."""
    meeting = worker_meeting.Meeting("a choice of the directory of an exported model")
    with meeting.telling():
        own = _free_name(base) if worker_meeting.is_writer() else ""
    name = meeting.from_chief(own)
    meeting.end()
    return name


def _free_name(base: str) -> str:
    stamp = int(time.time())
    while os.path.exists(os.path.join(base, str(stamp))):
        stamp += 1
    return str(stamp)


publish(
    "unisono.estimator.export",
    ServingInputReceiver,
    build_raw_serving_input_receiver_fn,
)
