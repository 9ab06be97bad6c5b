"""What a call of a compiled function looks like: arrays in it, and everything else.

Arrays are arguments of the program; numbers, strings and other objects are part of
its identity, so that a call with another number is traced again, as in TensorFlow.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.array import ArrayImpl

from unisono._src.execution.specs import PerReplicaSpec, TensorSpec
from unisono._src.foundation import nest
from unisono._src.machines.topology import Topology
from unisono._src.values import distributed
from unisono._src.values.array_operators import ArrayOperators


@final
class Identity:
    """Compares an unhashable object by identity, and keeps it alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@final
class Template:
    """A container as a pattern: its type and keys count, not what it holds."""

    __slots__ = ("keys", "value")

    def __init__(self, value: Any) -> None:
        self.keys = tuple(value) if isinstance(value, Mapping) else len(value)
        # Keep the pattern only, not the arrays in it.
        self.value = nest.rebuild(value, [None] * len(value))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Template)
            and type(other.value) is type(self.value)
            and other.keys == self.keys
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.keys))


@final
class Source:
    """An iterator among the arguments: any one of its kind will do."""

    __slots__ = ("iterator",)

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source)

    def __hash__(self) -> int:
        return 1


@final
class HostText:
    """Stands for text among the arguments of a program, which devices cannot hold.

    A batch may have such a component as long as the program does not use it.
    """

    def _refuse(self, *args: Any) -> Any:
        raise TypeError(
            "A component that holds text was used inside a function. Text stays on the "
            "host: use it outside, or make numbers of it in the dataset, with map."
        )

    __array__ = __jax_array__ = __len__ = __iter__ = __getitem__ = __bool__ = _refuse
    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = _refuse

    def __repr__(self) -> str:
        return "<text, which stays on the host>"


_TEXT = ("s", HostText, HostText())


def _is_text(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "O"


_SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_VALUES: Any = (enum.Enum, type, np.dtype, range, *_SCALARS)
_LEAF = jax.tree.structure(0)
_ZERO, _NEGATIVE_ZERO, _NAN = (Identity(x) for x in (0.0, -0.0, math.nan))


def flatten(x: Any, leaves: list[Any], topology: Topology | None) -> Any:
    """Append the arrays of `x` to `leaves` and return a hashable rest of it.

    The rest is a tuple that starts with a letter: ``a`` array, ``p`` stacked
    per-replica value, ``u`` uneven per-replica value, ``m`` mirrored value, ``s``
    static value, ``l``/``t`` list and tuple, ``c`` other container, ``x`` pytree.
    """
    # The commonest kinds first, told apart by identity of types: this runs on every
    # call, and `isinstance(x, jax.Array)` costs more than all of the rest.
    kind = type(x)
    if kind is ArrayImpl or (kind is np.ndarray and x.dtype.kind != "O"):
        leaves.append(x)
        return "a"
    if kind is distributed.PerReplica:
        if type(x._stacked) is ArrayImpl:
            leaves.append(x._stacked)
            return ("p", x._count, _LEAF)
        return _flatten_per_replica(x, leaves, topology)
    if kind is tuple or kind is list:
        parts = [flatten(c, leaves, topology) for c in x]
        return ("t" if kind is tuple else "l", tuple(parts))
    if kind is float and (x == 0.0 or x != x):
        return ("s", kind, _special_float(x))
    if kind in _SCALARS:
        return ("s", kind, x)
    return _flatten_other(x, leaves, topology)


def _flatten_per_replica(x: Any, leaves: list[Any], topology: Topology | None) -> Any:
    stacked = x._stacked
    if stacked is None and any(map(_is_text, x.values)):
        return _TEXT
    topology = x.topology or topology
    if stacked is None and topology is not None and x.count == topology.replicas:
        stacked = x.stacked(topology)
    if stacked is not None:
        flat, treedef = jax.tree.flatten(stacked)
        leaves.extend(flat)
        return ("p", x.count, treedef)
    if topology is not None and x.count == topology.replicas:
        x = x.complete(topology)
    flat, treedef = jax.tree.flatten(x.values)
    if any(not isinstance(p, (jax.Array, np.ndarray)) for p in flat):
        flat = [jnp.asarray(p) for p in flat]
    leaves.extend(_gathered(flat, topology))
    return ("u", x.count, treedef)


def _gathered(parts: list[Any], topology: Topology | None) -> list[Any]:
    """Uneven parts, on every device, so that one program can take them all."""
    if topology is None:
        return parts
    if topology.is_spread:
        return (
            parts
            if distributed.is_traced(parts)
            else [topology.spread(p) for p in parts]
        )
    placed: list[Any] = jax.device_put(parts, topology.replicated)
    return placed


def _flatten_other(x: Any, leaves: list[Any], topology: Topology | None) -> Any:
    if _is_text(x):
        return _TEXT
    if isinstance(x, (jax.Array, np.ndarray, np.generic)):
        leaves.append(x)
        return "a"
    if isinstance(x, distributed.Mirrored):
        flat, treedef = jax.tree.flatten(x.whole)
        leaves.extend(flat)
        return ("m", x.count, treedef)
    if isinstance(x, ArrayOperators):
        return ("s", type(x), Identity(x))
    if hasattr(x, "put_back"):
        return ("s", Source, Source(x))
    if nest.is_nested(x):
        parts = tuple(flatten(c, leaves, topology) for c in nest.children(x))
        return ("c", Template(x), parts)
    if not jax.tree_util.all_leaves([x]) and not nest.is_whole(x):
        flat, treedef = jax.tree.flatten(x)
        return ("x", treedef, tuple(flatten(c, leaves, topology) for c in flat))
    is_value = isinstance(x, _VALUES)
    return ("s", type(x), x if is_value else Identity(x))


def flatten_usual(args: tuple[Any, ...], leaves: list[Any]) -> Any:
    """`flatten` of arguments that are arrays or stacked values; None for others."""
    parts: list[Any] = []
    for x in args:
        kind = type(x)
        if kind is ArrayImpl:
            leaves.append(x)
            parts.append("a")
        elif kind is distributed.PerReplica and type(x._stacked) is ArrayImpl:
            leaves.append(x._stacked)
            parts.append(("p", x._count, _LEAF))
        else:
            return None
    return ("t", tuple(parts))


def _special_float(x: float) -> Any:
    """Tells 0.0 from -0.0, and finds nan equal to itself."""
    if x != x:
        return _NAN
    return _NEGATIVE_ZERO if math.copysign(1.0, x) < 0 else _ZERO


def leaf_kinds(rest: Any) -> list[str]:
    """For each array of a flattened structure the letter of what it belongs to."""
    if rest == "a":
        return ["a"]
    tag = rest[0]
    if tag in "pum":
        return [tag] * rest[2].num_leaves
    if tag == "s":
        return []
    return [k for part in rest[-1] for k in leaf_kinds(part)]


def sources(rest: Any) -> list[Any]:
    """The iterators in the rest of a flattened call, in order."""
    if not isinstance(rest, tuple):
        return []
    if len(rest) == 3 and rest[1] is Source:
        return [rest[2].iterator]
    return [found for part in rest for found in sources(part)]


def rebuild(rest: Any, leaves: Any) -> Any:
    """Inverse of `flatten`; `leaves` is an iterator."""
    tag = rest[0]
    if tag == "a":
        return next(leaves)
    if tag == "s":
        return rest[2].value if isinstance(rest[2], Identity) else rest[2]
    if tag in ("t", "l"):
        parts = [rebuild(r, leaves) for r in rest[1]]
        return tuple(parts) if tag == "t" else parts
    return _rebuild_other(tag, rest, leaves)


def _rebuild_other(tag: str, rest: Any, leaves: Any) -> Any:
    if tag == "c":
        parts = [rebuild(r, leaves) for r in rest[2]]
        return nest.rebuild(rest[1].value, parts)
    if tag == "x":
        return rest[1].unflatten([rebuild(r, leaves) for r in rest[2]])
    treedef = rest[2]
    tree = treedef.unflatten([next(leaves) for _ in range(treedef.num_leaves)])
    if tag == "p":
        return distributed.PerReplica.from_stacked(tree, rest[1])
    if tag == "u":
        return distributed.PerReplica(tree)
    return distributed.Mirrored.of(tree, rest[1])


def apply_specs(args: Sequence[Any], input_signature: Sequence[Any]) -> tuple[Any, ...]:
    """Check arguments against an `input_signature` and convert numbers to arrays.

    Raises:
        TypeError: wrong number of arguments, shape or element type.
    """
    if len(args) != len(input_signature):
        raise TypeError(
            f"This function has an input_signature of {len(input_signature)} "
            f"argument(s) but was called with {len(args)}."
        )
    pairs = enumerate(zip(args, input_signature, strict=True))
    return tuple(_apply_spec(a, s, f"argument {i}") for i, (a, s) in pairs)


def _check_parts(value: Any, spec: PerReplicaSpec, where: str) -> None:
    """Raise `TypeError` unless the parts of a value are those that a spec describes."""
    if not isinstance(value, distributed.PerReplica) or value.is_traced:
        return
    kinds = value.kinds()
    fits = len(kinds) == len(spec.specs) and all(
        one.describes(*kind) for one, kind in zip(spec.specs, kinds, strict=True)
    )
    if not fits:
        told = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in kinds)
        raise TypeError(f"{where} has the parts {told}, which do not match {spec}.")


def _apply_spec(value: Any, spec: Any, where: str) -> Any:
    if nest.is_nested(spec):
        nest.check_same(spec, value, 0) if type(spec) is type(value) else None
        parts = [
            _apply_spec(v, s, where)
            for v, s in zip(nest.children(value), nest.children(spec), strict=True)
        ]
        return nest.rebuild(value, parts)
    if isinstance(spec, PerReplicaSpec):
        _check_parts(value, spec, where)
        return value
    if not isinstance(spec, TensorSpec):
        raise TypeError(
            f"Expected a TensorSpec in input_signature for {where}, received {spec!r}."
        )
    if spec.dtype.kind == "O":
        value = np.asarray(value, object)
    elif not isinstance(value, jax.Array):
        value = jnp.asarray(value, spec.dtype)
    if not spec.is_compatible_with(value):
        raise TypeError(
            f"{where} of shape {value.shape} and type {value.dtype} does not match the "
            f"input_signature {spec}."
        )
    return value
