"""Brings replicas together for `merge_call`.

The function that is given to `merge_call` sees the values of all replicas, and each
replica gets its own part of the result. There is one function for each way to run
replicas.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient, nest
from unisono._src.machines.topology import AXIS
from unisono._src.state import frames
from unisono._src.values import distributed, ports
from unisono._src.values.array_operators import ArrayOperators
from unisono._src.values.indexed_slices import IndexedSlices

# A function that a replica gives to `merge_call`, and the arguments for it.
_Merge = Callable[..., object]
_Args = Sequence[object]
_Kwargs = dict[str, object]


def merge(
    strategy: object, port: ports.Port, merge_fn: _Merge, args: _Args, kwargs: _Kwargs
) -> Any:
    """Call `merge_fn` once for all replicas, and return this replica's own part.

    Args:
        strategy: the strategy that runs the replicas.
        port: how this replica meets the others.
        merge_fn: called as ``merge_fn(strategy, *args, **kwargs)``, with each argument
            merged over the replicas.
        args: this replica's positional arguments.
        kwargs: this replica's keyword arguments.
    """
    if port.replicas > 1 and isinstance(port, ports.SpmdPort):
        return _merge_spmd(strategy, port, merge_fn, args, kwargs)
    if port.replicas > 1 and isinstance(port, ports.LockstepPort):
        return _merge_lockstep(strategy, port, merge_fn, args, kwargs)
    return _merge_alone(strategy, merge_fn, args, kwargs)


def enter_cross_replica(
    strategy: object, port: ports.Port | None
) -> AbstractContextManager[ambient.Frame]:
    """Return a block in cross-replica context; a merge in it goes through `port`."""
    return ambient.push(
        strategy=strategy, mode=ambient.CROSS, replica=None, copy=None, port=port
    )


def _merge_alone(
    strategy: object, merge_fn: _Merge, args: _Args, kwargs: _Kwargs
) -> object:
    """Call `merge_fn` for the only replica."""
    # Outside every scope there is no strategy to be current, only a default one.
    owner = None if ambient.current().strategy is None else strategy
    with enter_cross_replica(owner, None):
        # Nothing is wrapped for one replica, as in TensorFlow; but a component of a
        # variable becomes the variable.
        args = distributed.regroup([tuple(args)])
        merged = merge_fn(strategy, *args, **distributed.regroup([kwargs]))
    return distributed.unwrap(merged, 0, 1)


def group_replica_values(tree: object, port: ports.SpmdPort) -> Any:
    """Return values of a traced replica as cross-replica code sees them.

    Values that differ between replicas become `PerReplica`. Values that all replicas
    share stay as they are.
    """

    def leaf(x: object) -> Any:
        container = distributed.container_of(x)
        if container is not None:
            return container
        if isinstance(x, (distributed.DistributedValues, ArrayOperators)):
            return x
        # Some array of it may differ between replicas.
        if any(not port.is_shared(a) for a in jax.tree.leaves(x)):
            return distributed.PerReplica.from_local(x, port.replicas)
        return x

    return nest.map_structure(leaf, tree)


def own_parts(tree: object) -> Any:
    """Return the traced replica's own part of each distributed leaf."""

    def leaf(x: object) -> Any:
        if isinstance(x, distributed.PerReplica):
            return x.local if x.local is not None else _own_part(x)
        return x.whole if isinstance(x, distributed.Mirrored) else x

    return nest.map_structure(leaf, tree)


def _own_part(x: distributed.PerReplica) -> Any:
    """Return the traced replica's part of a value that was made outside replicas."""
    index = jax.lax.axis_index(AXIS)
    every = x.complete(ambient.topology())
    return jnp.stack([jnp.asarray(p) for p in every.values])[index]


def _merge_spmd(
    strategy: object,
    port: ports.SpmdPort,
    merge_fn: _Merge,
    args: _Args,
    kwargs: _Kwargs,
) -> object:
    """Call `merge_fn` once in the program that serves all replicas."""

    # No gradient goes through `merge_call`: replicas that take turns meet outside their
    # gradients, and both ways to run them must give the same numbers.
    def detach(tree: object) -> Any:
        return jax.tree.map(frames.strip_gradient, tree)

    def prepare(tree: object) -> Any:
        return nest.map_structure(
            lambda x: detach(x) if isinstance(x, (jax.Array, IndexedSlices)) else x,
            tree,
        )

    with enter_cross_replica(strategy, port):
        args = group_replica_values(prepare(tuple(args)), port)
        kwargs = group_replica_values(prepare(kwargs), port)
        merged = merge_fn(strategy, *args, **kwargs)
    # What `merge_fn` made is one object for all replicas; later merges must know.
    for x in nest.leaves(merged):
        if isinstance(x, jax.core.Tracer) and not port.is_shared(x):
            port.share(x)
    return own_parts(merged)


def _merge_lockstep(
    strategy: object,
    port: ports.LockstepPort,
    merge_fn: _Merge,
    args: _Args,
    kwargs: _Kwargs,
) -> object:
    """Wait for all replicas that take turns, and call `merge_fn` once for them."""

    def combine(payloads: list[Any]) -> Sequence[Any]:
        topology = ambient.topology()
        wrap = functools.partial(distributed.PerReplica, topology=topology)
        merged_args = distributed.regroup([p[0] for p in payloads], wrap)
        merged_kwargs = distributed.regroup([p[1] for p in payloads], wrap)
        merged = merge_fn(strategy, *merged_args, **merged_kwargs)
        return [distributed.unwrap(merged, i, port.replicas) for i in port.turns]

    return port.meet(combine, (tuple(args), dict(kwargs)))
