"""Runs the programs of a strategy on another number of replicas, for a while.

The strategy object, its variables and the functions that use them stay the same. What
they stand for changes: the devices, the places of the variables, and the programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation
from unisono._src.machines import devices
from unisono._src.machines.topology import Topology
from unisono._src.state import storage, variable_identity, variables
from unisono._src.state.storage import Cell, Placement, Policy
from unisono._src.strategies import base, call_context, replicated


def find_devices(strategy: base.Strategy, count: int) -> tuple[str, ...]:
    """Returns the names of devices for so many replicas, the strategy's own first.

    Raises:
        ValueError: there are fewer devices, or the strategy cannot be resized.
    """
    topology = _placement_of(strategy).topology
    names = list(topology.names)
    platform = topology.devices[0].platform
    others = devices.names_of(jax.local_devices(backend=platform), "localhost", 0)
    names += [name for name in others if name not in names]
    if len(names) < count:
        raise ValueError(
            f"{count} replicas need {count} devices, and this process has "
            f"{len(names)}. Ask for fewer, or call "
            f"unisono.config.set_virtual_devices({count}) before anything else, or use "
            "the command `unisono parity`, which starts a process of its own."
        )
    return tuple(names[:count])


def _placement_of(strategy: base.Strategy) -> Placement:
    """Returns the placement of a strategy whose number of replicas may change."""
    if isinstance(strategy.extended, replicated.ReplicatedExtended):
        placement: Placement = call_context.find_placement(strategy)
        topology = placement.topology
        is_here = not topology.is_spread and not topology.spans
        kinds = (Policy.MIRRORED, Policy.CENTRAL)
        if is_here and placement.kind in kinds and placement.ops is None:
            return placement
    raise ValueError(
        f"{strategy!r} has a fixed number of replicas. Make the step with a "
        "MirroredStrategy or CentralStorageStrategy of this process."
    )


@contextlib.contextmanager
def resized(strategy: base.Strategy, count: int) -> Iterator[None]:
    """Runs a block in which a strategy has another number of replicas.

    Afterwards the variables that were there before are where they were, with the value
    that they had. Those that the block has made stay, with their value.

    Args:
        strategy: a `MirroredStrategy` or `CentralStorageStrategy`.
        count: the number of replicas.

    Raises:
        RuntimeError: the code is in replica context, or in another strategy's scope.
        ValueError: there are fewer devices, or the strategy cannot be resized.
    """
    call_context.require_cross_replica(strategy)
    placement = _placement_of(strategy)
    topology = Topology.of(find_devices(strategy, count))
    target = dataclasses.replace(placement, topology=topology)
    if target.kind is Policy.MIRRORED:
        home = {"parameter_device": topology.home, "parameter_name": topology.names[0]}
        target = dataclasses.replace(target, **home)
    before = {cell: cell.array for cell in _own_cells(strategy)}
    for cell in before:
        cell.escape()
        _move(cell, target)
    outer = base.replace_extended(
        strategy, replicated.ReplicatedExtended(strategy, target)
    )
    # In the strategy's scope, new variables go to the other devices, too.
    is_inside = ambient.current().strategy is strategy
    inner = ambient.push(placement=target) if is_inside else contextlib.nullcontext()
    try:
        with inner:
            yield
    finally:
        base.replace_extended(strategy, outer)
        for cell in _own_cells(strategy):
            if cell in before:
                cell.move(placement, before[cell])
                _forget_components(cell)
            else:
                _move(cell, placement)


def _own_cells(strategy: base.Strategy) -> list[Cell]:
    """Returns the cells with a value that a strategy has placed."""
    return [
        cell
        for cell in storage.live_cells()
        if cell.placement is not None and cell.placement.strategy is strategy
    ]


def _move(cell: Cell, placement: Placement) -> None:
    """Moves a cell with its value, of which each replica gets its share."""
    value = read_whole(cell)
    cell.move(placement, share(cell, value, placement.topology.replicas))
    _forget_components(cell)


def _forget_components(cell: Cell) -> None:
    found = variable_identity.find(cell)
    if found is not None:
        variables.forget_components(found)


def read_whole(cell: Cell) -> Any:
    """Returns the value that all copies of a cell stand for together."""
    array = cell.array
    if not cell.is_stacked:
        return array
    if cell.aggregation is VariableAggregation.SUM:
        return jnp.sum(array, axis=0)
    if cell.aggregation is VariableAggregation.MEAN:
        return jnp.mean(array, axis=0)
    return array[0]


def share(cell: Cell, value: Any, count: int) -> Any:
    """Returns what a cell stores of a value for a number of replicas."""
    value = jax.device_put(value, jax.local_devices()[0])
    if cell.policy is not Policy.ON_READ or count == 1:
        return value
    if cell.aggregation is VariableAggregation.SUM:
        # The first replica has it all, so that no rounding is added.
        rest = jnp.zeros((count - 1, *value.shape), value.dtype)
        return jnp.concatenate([value[None], rest])
    return jnp.broadcast_to(value, (count, *value.shape))
