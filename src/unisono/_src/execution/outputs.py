"""Converts a function's result to the arrays that its program returns, and back."""

from __future__ import annotations

import collections
import dataclasses
import operator
import types
from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.execution import signature
from unisono._src.foundation import nest
from unisono._src.machines.topology import Topology
from unisono._src.state import frames, reading, variables
from unisono._src.values import collectives, distributed


def flatten(result: Any) -> tuple[Any, list[Any]]:
    """Return the structure of a result, and its arrays.

    Raises:
        TypeError: the result holds text, or arrays in an object of an unknown class.
    """
    flat: list[Any] = []
    rest = signature.flatten(nest.map_structure(_convert_leaf, result), flat, None)
    return rest, [jnp.asarray(x) for x in flat]


def _convert_leaf(x: Any) -> Any:
    """Return a leaf as an array; a variable or mirrored value gives its one value."""
    if isinstance(x, distributed.Mirrored):
        return x.whole
    if isinstance(x, variables.Variable):
        return reading.read(x)
    if isinstance(x, distributed.PerReplica) and x.topology is not None:
        # A value that was made elsewhere: the program runs on its devices.
        frames.frame().note_topology(x.topology)
    if isinstance(x, signature.HostText):
        raise TypeError(
            "The function returns a component that holds text, which a compiled "
            "program cannot return. Take it from the batch that you passed in instead."
        )
    if _hides_arrays(x):
        kind = type(x).__name__
        raise TypeError(
            f"Could not build a TypeSpec for an object of unsupported type {kind}: the "
            f"function returns arrays inside of a {kind}, whose parts are not known. "
            "Return a tuple or a mapping, or register the class, for example with "
            "jax.tree_util.register_dataclass."
        )
    is_number = isinstance(x, (bool, int, float, complex))
    return jnp.asarray(x) if is_number else x


def _hides_arrays(x: Any) -> bool:
    """Whether an object that JAX cannot take apart has arrays of the program."""
    inner: list[Any] = []
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        inner = [getattr(x, field.name, None) for field in dataclasses.fields(x)]
    elif hasattr(type(x), "__attrs_attrs__"):
        inner = [getattr(x, field.name, None) for field in type(x).__attrs_attrs__]
    elif isinstance(x, types.SimpleNamespace):
        inner = [*vars(x).values()]
    elif isinstance(x, collections.deque | ItemsView | KeysView | ValuesView):
        inner = [*x]
    if not inner or not jax.tree_util.all_leaves([x]):
        return False
    return any(isinstance(y, jax.core.Tracer) for y in nest.leaves(inner))


def collector(outputs: Any, mesh: Topology | None) -> Any:
    """Return a function that makes the caller's result of a program's arrays.

    Args:
        outputs: the structure that `flatten` returned.
        mesh: the devices of the program; None for one device.
    """
    if mesh is not None and mesh.is_spread:
        return lambda flat: _keep_local_parts(
            signature.rebuild(outputs, iter(flat)), mesh
        )
    # The commonest result is one array; this saves calls at every step.
    if outputs == "a":
        return operator.itemgetter(0)
    return lambda flat: signature.rebuild(outputs, iter(flat))


def _keep_local_parts(tree: Any, mesh: Topology) -> Any:
    """Return a result without the parts that other processes hold."""

    def leaf(x: Any) -> Any:
        if not isinstance(x, distributed.PerReplica):
            return collectives.own_copy(x)
        parts = x.values
        # A program that replicas of all workers made in turn has a part for each of
        # them.
        if len(parts) == mesh.replicas:
            found = [parts[i] for i in mesh.local]
            parts = tuple(jax.tree.map(collectives.own_copy, found))
            x = distributed.PerReplica(parts, mesh)
        # As in TensorFlow, a worker with one replica gets the plain value.
        return parts[0] if mesh.copies == 1 else x

    return nest.map_leaves(leaf, tree, distributed.PerReplica)
