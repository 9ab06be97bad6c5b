"""`update` and `update_non_slot` over the copies of mirrored state."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import jax

from unisono._src.execution import lockstep, merging
from unisono._src.foundation import ambient, errors, nest
from unisono._src.machines.topology import Topology
from unisono._src.state import frames, holding, mirroring
from unisono._src.state.variables import MirroredVariable, SyncOnReadVariable
from unisono._src.strategies.call_context import Args, Fn, Kwargs
from unisono._src.values import distributed, ports


def update(
    topology: Topology,
    var: MirroredVariable | SyncOnReadVariable,
    fn: Fn,
    args: Args,
    kwargs: Kwargs,
    group: bool,
    in_turns: bool,
) -> object:
    """Calls ``fn(copy, *args, **kwargs)`` for every copy of `var`.

    Args:
        topology: the replicas.
        var: the variable.
        fn: the function.
        args: its further arguments.
        kwargs: its keyword arguments.
        group: whether to return one mirrored result, or one for each copy.
        in_turns: whether replicas that run in turn call this together. Then they may
            bring different objects for values that they computed alike.

    Returns:
        The results of `fn`; see `StrategyExtended.update`.
    """
    cell = var.state_cell
    port = ambient.current().port
    if port is not None and port.is_spmd:
        # Any component will do: in an update of such a program it stands for the copy
        # of the replica that runs.
        own = functools.partial(fn, var.values[0])
        return _update_spmd(port, own, args, kwargs, group)
    count = cell.copies
    if frames.frame().is_compiled and not cell.is_stacked:
        return _update_traced(topology, var, fn, args, kwargs, group, in_turns)
    # Eager: each copy is updated in turn, and afterwards all must still be equal
    # (docs/decisions/0006).
    results = []
    with holding.hold([cell], f"an update of the variable '{cell.name}'"):
        before = cell.array, cell.is_suspect
        for i, copy in zip(
            lockstep.replicas_in_turn(cell.topology), var.values, strict=True
        ):
            own_args, own_kwargs = distributed.unwrap((args, kwargs), i, count)
            with _copy_frame(i, cell.topology):
                results.append(fn(copy, *own_args, **own_kwargs))
        # If copies differ, the array from before is put back.
        mirroring.verify(cell, before, among_workers=True)
    return _group_results(results, group, topology)


def update_non_slot(
    topology: Topology, fn: Fn, args: Args, kwargs: Kwargs, group: bool
) -> object:
    """Calls ``fn(*args, **kwargs)`` for every device; see `update`."""
    port = ambient.current().port
    if port is not None and port.is_spmd:
        return _update_spmd(port, fn, args, kwargs, group)
    results = []
    for i in lockstep.replicas_in_turn(topology):
        own_args, own_kwargs = distributed.unwrap((args, kwargs), i, topology.replicas)
        with _copy_frame(i, topology):
            results.append(fn(*own_args, **own_kwargs))
    return _group_results(results, group, topology)


def _copy_frame(index: int, topology: Topology) -> AbstractContextManager[object]:
    """Returns a context manager for code that updates one copy."""
    if frames.frame().is_compiled:
        return ambient.push(mode=ambient.UPDATE, replica=None, copy=index)
    return _UpdateOnDevice(index, topology)


@final
class _UpdateOnDevice:
    """A context manager for an update whose arrays are made on the copy's device.

    A class, because it is entered at every eager update, and a generator is slower.
    """

    def __init__(self, index: int, topology: Topology) -> None:
        self._frame = ambient.push(mode=ambient.UPDATE, replica=None, copy=index)
        self._device = jax.default_device(topology.devices[index])

    def __enter__(self) -> None:
        self._frame.__enter__()
        self._device.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._device.__exit__(*exc)
        self._frame.__exit__(*exc)


def _update_spmd(
    port: ports.SpmdPort, fn: Fn, args: Args, kwargs: Kwargs, group: bool
) -> object:
    """Calls `fn` for the own copy, in a program that every device runs."""
    args, kwargs = merging.own_parts((args, kwargs))
    with ambient.push(mode=ambient.UPDATE, replica=None):
        result = fn(*args, **kwargs)

    def leaf(x: object) -> object:
        if isinstance(x, distributed.PerReplica):
            x = distributed.Mirrored.of(x.local, port.replicas)
        return x if group else _as_tuple(x)

    return nest.map_structure(leaf, merging.group_replica_values(result, port))


def _update_traced(
    topology: Topology,
    var: MirroredVariable | SyncOnReadVariable,
    fn: Fn,
    args: Args,
    kwargs: Kwargs,
    group: bool,
    in_turns: bool,
) -> object:
    """Calls `fn` for every copy, in a program that holds one value for all of them."""
    count, cell = topology.replicas, var.state_cell
    given = [
        x for x in nest.leaves((args, kwargs)) if isinstance(x, distributed.PerReplica)
    ]
    if given and not in_turns:
        # The copies would differ, and the program has no room for that.
        raise errors.diverging_copies_error(cell.name, cell.origin)
    results = []
    for i in range(count):
        own_args, own_kwargs = distributed.unwrap((args, kwargs), i, count)
        with ambient.push(mode=ambient.UPDATE, replica=None, copy=i, updating=cell):
            results.append(fn(var.values[i], *own_args, **own_kwargs))
    # If every copy was assigned, the program goes on with the new value.
    frames.frame().settle(cell)
    return _group_results(results, group, topology)


def _as_tuple(x: object) -> tuple[object, ...]:
    return tuple(x.values) if isinstance(x, distributed.DistributedValues) else (x,)


def _group_results(
    results: Sequence[object], group: bool, topology: Topology
) -> object:
    """Merges the results of all copies, as `StrategyExtended.update` returns them."""
    wrap = functools.partial(distributed.Mirrored, topology=topology)
    merged = distributed.regroup(results, wrap)

    def leaf(x: object) -> object:
        if not group:
            return _as_tuple(x)
        if isinstance(x, distributed.Mirrored):
            # As TensorFlow's eager `group`, which gives None for what is no tensor.
            tensors = all(isinstance(v, jax.Array) for v in jax.tree.leaves(x.values))
            return x if tensors else None
        return x

    return nest.map_structure(leaf, merged)


def single_result(result: object, group: bool) -> object:
    """Returns the result of an update of one copy, as `update` returns it."""
    if group:
        return distributed.regroup([result])
    return nest.map_structure(lambda x: (x,), distributed.regroup([result]))
