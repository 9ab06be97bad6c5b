"""Keras' loops on several workers: their arguments, their input and their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing

from unisono._src.integrations.keras import positions, stops
from unisono._src.machines.topology import Topology
from unisono._src.strategies import call_context
from unisono._src.values import collectives
from unisono._src.workers import watchdog

# The arguments of `fit` from which Keras makes a data adapter.
_INPUT = ("x", "y", "sample_weight", "batch_size", "steps_per_epoch", "class_weight")


def prepare(
    strategy: Any, method: Any, given: dict[str, Any]
) -> stops.Agreement | None:
    """Change the arguments of a loop of Keras for several workers, and for backups.

    Only the chief prints its progress. With several workers, or with a callback that
    makes backups, `fit` reads from a `PositionedAdapter`.

    Args:
        strategy: the strategy of the model.
        method: the loop, such as `fit`.
        given: the arguments of the loop by name; they are changed in place.

    Returns:
        How the workers agree to stop, or None if this is not `fit` on several workers.
    """
    topology = call_context.find_placement(strategy).topology
    if (
        topology.is_spread
        and topology.worker != 0
        and "on_batch" not in method.__name__
    ):
        given["verbose"] = 0
    if method.__name__ != "fit":
        return None
    takers = [c for c in _as_list(given.get("callbacks")) if hasattr(c, "_take_input")]
    agreement = stops.Agreement(topology) if topology.is_spread else None
    if agreement is not None or takers:
        adapter = _position_input(given, agreement)
        positions.give_input(takers, adapter)
    return agreement


def _as_list(callbacks: Any) -> list[Any]:
    """Return the callbacks of a list, of a `CallbackList`, or the only one."""
    found = getattr(callbacks, "callbacks", callbacks) or []
    return list(found) if isinstance(found, list | tuple) else [found]


def _position_input(
    given: dict[str, Any], agreement: stops.Agreement | None
) -> positions.PositionedAdapter:
    """Replace the input of `fit` by an adapter that knows its position.

    Args:
        given: the arguments of `fit`; they are changed in place.
        agreement: with other workers, which read the same batches, how they stop.
    """
    # Keras splits arrays only, so the validation data are taken off first.
    part = given.pop("validation_split", 0.0)
    if part and given.get("validation_data") is None:
        arrays = tuple(given.get(name) for name in ("x", "y", "sample_weight"))
        split = array_slicing.train_validation_split(arrays, validation_split=part)
        (given["x"], given["y"], given["sample_weight"]), given["validation_data"] = (
            split
        )
    wanted = {name: given.get(name) for name in _INPUT}
    inner = data_adapters.get_data_adapter(shuffle=given.get("shuffle", True), **wanted)
    made = positions.PositionedAdapter(inner, agreement)
    for name in ("y", "sample_weight", "class_weight"):
        given.pop(name, None)
    given["x"] = made
    return made


def watch_step(step: Callable[..., Any], topology: Topology) -> Callable[..., Any]:
    """Return a step in which workers watch each other and get all of the outputs.

    Args:
        step: the step of Keras.
        topology: the devices of all workers.
    """
    name = getattr(step, "__name__", "step")
    whole = jax.jit(lambda x: x, out_shardings=topology.replicated_sharding)

    def own(x: Any) -> Any:
        return collectives.own_copy(x if x.is_fully_replicated else whole(x))

    def run(state: Any, data: Any) -> Any:
        watchdog.enter((f"Keras {name}", [x.shape for x in jax.tree.leaves(data)]))
        try:
            outputs, new = step(state, data)
            own_outputs = jax.tree.map(own, outputs)
        except Exception as error:
            watchdog.raise_explained(error)
        watchdog.watch(own_outputs)
        return own_outputs, new

    return run
