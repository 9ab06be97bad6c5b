"""What leaves a compiled program: arrays, and the rest of the result around them."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.execution import contexts, signature
from unisono._src.foundation import nest
from unisono._src.machines.topology import Topology
from unisono._src.values import collectives, distributed
from unisono._src.values.array_operators import ArrayOperators


def flatten(result: Any) -> tuple[Any, list[Any]]:
    """The arrays of a result, and the rest of it."""
    flat: list[Any] = []
    rest = signature.flatten(nest.map_structure(_output_leaf, result), flat, None)
    return rest, [jnp.asarray(x) for x in flat]


def _output_leaf(x: Any) -> Any:
    """Numbers leave as arrays, variables and mirrored values as their one value."""
    if isinstance(x, ArrayOperators):
        return contexts.read_for_output(x)
    if isinstance(x, signature.HostText):
        raise TypeError(
            "The function returns a component that holds text, which does not pass "
            "through a compiled program. Take it from the batch that you gave."
        )
    is_number = isinstance(x, (bool, int, float, complex))
    return jnp.asarray(x) if is_number else x


def collector(outputs: Any, mesh: Topology | None) -> Any:
    """A function from the program's arrays to what the caller sees."""
    if mesh is not None and mesh.is_spread:
        return lambda flat: _of_this_worker(
            signature.rebuild(outputs, iter(flat)), mesh
        )
    if outputs == "a":
        return operator.itemgetter(0)
    return lambda flat: signature.rebuild(outputs, iter(flat))


def _of_this_worker(tree: Any, mesh: Topology) -> Any:
    """A result with what other processes hold left out."""

    def leaf(x: Any) -> Any:
        if not isinstance(x, distributed.PerReplica):
            return collectives.own_copy(x)
        parts = x.values
        if len(parts) == mesh.replicas:
            found = [parts[i] for i in mesh.local]
            parts = tuple(jax.tree.map(collectives.own_copy, found))
            x = distributed.PerReplica(parts, mesh)
        return parts[0] if mesh.copies == 1 else x

    return nest.map_leaves(leaf, tree, distributed.PerReplica)
