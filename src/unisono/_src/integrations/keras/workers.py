"""`fit`, `evaluate` and `predict` on several workers, and what `fit` reads from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing

from unisono._src.integrations.keras import positions
from unisono._src.machines.topology import Topology
from unisono._src.values import collectives
from unisono._src.workers import watchdog

_INPUT = ("x", "y", "sample_weight", "batch_size", "steps_per_epoch", "class_weight")


def prepare(strategy: Any, method: Any, given: dict[str, Any]) -> None:
    """Change the arguments of a loop of Keras for the workers, and for backups.

    Args:
        strategy: of the model.
        method: the loop.
        given: its arguments by name.
    """
    topology = strategy.extended._placement.topology
    if (
        topology.is_spread
        and topology.worker != 0
        and "on_batch" not in method.__name__
    ):
        given["verbose"] = 0
    if method.__name__ != "fit":
        return
    takers = [c for c in _listed(given.get("callbacks")) if hasattr(c, "_take_input")]
    if topology.is_spread or takers:
        adapter = _positioned(given, topology.is_spread)
        for callback in takers:
            callback._take_input(adapter)


def _listed(callbacks: Any) -> list[Any]:
    found = getattr(callbacks, "callbacks", callbacks) or []
    return list(found) if isinstance(found, list | tuple) else [found]


def _positioned(
    given: dict[str, Any], is_together: bool
) -> positions.PositionedAdapter:
    """Put an adapter that knows its position in place of the input."""
    part = given.pop("validation_split", 0.0)
    if part and given.get("validation_data") is None:
        arrays = tuple(given.get(name) for name in ("x", "y", "sample_weight"))
        split = array_slicing.train_validation_split(arrays, validation_split=part)
        (given["x"], given["y"], given["sample_weight"]), given["validation_data"] = (
            split
        )
    wanted = {name: given.get(name) for name in _INPUT}
    inner = data_adapters.get_data_adapter(shuffle=given.get("shuffle", True), **wanted)
    made = positions.PositionedAdapter(inner, is_together)
    for name in ("y", "sample_weight", "class_weight"):
        given.pop(name, None)
    given["x"] = made
    return made


def together(step: Callable[..., Any], topology: Topology) -> Callable[..., Any]:
    """A step that all workers take; they watch each other, and see all outputs."""
    name = getattr(step, "__name__", "step")
    whole = jax.jit(lambda x: x, out_shardings=topology.replicated)

    def own(x: Any) -> Any:
        return collectives.own_copy(x if x.is_fully_replicated else whole(x))

    def run(state: Any, data: Any) -> Any:
        watchdog.enter((f"Keras {name}", [x.shape for x in jax.tree.leaves(data)]))
        try:
            outputs, new = step(state, data)
            return jax.tree.map(own, outputs), new
        except Exception as error:
            watchdog.raise_explained(error)

    return run
