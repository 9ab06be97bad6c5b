"""Splits arguments and results of compiled functions into arrays and all else.

Arrays become arguments of the program. Numbers, strings and other objects are part of
the program's identity, so that a call with another number is traced again, as in
TensorFlow.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import inspect
import math
import operator
import types
from collections.abc import (
    Callable,
    ItemsView,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution.specs import PerReplicaSpec, TensorSpec
from unisono._src.foundation import (
    host_numbers,
    host_types,
    jax_internals,
    jax_types,
    nest,
    wide_numbers,
)
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.machines.topology import Topology
from unisono._src.state import frames, reading, variables
from unisono._src.state.variable_identity import Reference
from unisono._src.values import collectives, distributed, jax_tapes
from unisono._src.values.array_operators import ArrayOperators, operand

_R = TypeVar("_R")
_ArrayImpl = jax_internals.ArrayImpl


@final
class Template:
    """A container without its contents: equal if the types and keys are."""

    __slots__ = ("keys", "value")

    def __init__(self, value: Any) -> None:
        self.keys = tuple(value) if isinstance(value, Mapping) else len(value)
        # An empty copy, because signatures are kept and must not keep arrays alive.
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
    """An iterator among the arguments; all iterators count as equal."""

    __slots__ = ("iterator",)

    def __init__(self, iterator: object) -> None:
        self.iterator = iterator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source)

    def __hash__(self) -> int:
        return 1


@final
class HostText:
    """Stands for text among the arguments of a program, since devices hold no text.

    A batch may have a component of text as long as the program does not use it.
    """

    def _refuse(self, *args: object) -> Any:
        """Raise `TypeError`, whatever is done with the text."""
        raise TypeError(
            "A component that holds text was used inside a function. Text stays on the "
            "host: use it outside, or make numbers of it in the dataset, with map."
        )

    __array__ = __jax_array__ = __len__ = __iter__ = __getitem__ = __bool__ = _refuse
    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = _refuse

    def __repr__(self) -> str:
        return "<text, which stays on the host>"


_TEXT = ("s", HostText, HostText())
# What has a number that does not fit, for the message.
_ARGUMENT = "an argument or result of a function"


def _is_text(x: object) -> bool:
    """Whether `x` is an array of objects, which is how text is held."""
    return isinstance(x, np.ndarray) and x.dtype.kind == "O"


SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})
# Static values of these types are compared by value, all others by identity.
_VALUES: Any = (enum.Enum, type, np.dtype, range, TensorShape, *SCALARS)
# The structure of a value that is one array.
_LEAF = jax.tree.structure(0)
# In a key, 0.0 would be equal to -0.0, and NaN would not be equal to itself.
_ZERO, _NEGATIVE_ZERO, _NAN = (Reference(x) for x in (0.0, -0.0, math.nan))


def flatten(x: Any, leaves: list[Any], topology: Topology | None) -> Any:
    """Append the arrays of `x` to `leaves`, and return a hashable rest of it.

    The rest is ``a`` for an array. Otherwise it is a tuple that starts with a letter:
    ``p`` stacked per-replica value, ``u`` uneven per-replica value, ``m`` mirrored
    value, ``s`` static value, ``l``/``t`` list and tuple, ``c`` other container, ``x``
    pytree.

    Args:
        x: the arguments of a call.
        leaves: the list to append to.
        topology: the devices of the program, which per-replica values are put on;
            None if that is not known.
    """
    # The commonest kinds first, told apart by identity of types: this runs on every
    # call, and `isinstance(x, jax.Array)` costs more than all of the rest.
    kind = type(x)
    if kind is _ArrayImpl:
        leaves.append(x)
        return "a"
    if kind is np.ndarray and x.dtype.kind != "O":
        leaves.append(wide_numbers.check(x, _ARGUMENT))
        return "a"
    if kind is distributed.PerReplica:
        # The fields as they are: a property costs a call for each argument.
        stacked = x._stacked  # noqa: SLF001
        if type(stacked) is _ArrayImpl:
            leaves.append(stacked)
            return ("p", x._count, _LEAF)  # noqa: SLF001
        return _flatten_per_replica(x, stacked, leaves, topology)
    if kind is tuple or kind is list:
        parts = [flatten(c, leaves, topology) for c in x]
        return ("t" if kind is tuple else "l", tuple(parts))
    if kind is float and (x == 0.0 or x != x):
        return ("s", kind, _special_float_key(x))
    if kind in SCALARS:
        return ("s", kind, x)
    return _flatten_other(x, leaves, topology)


def _flatten_per_replica(
    x: Any, stacked: Any, leaves: list[Any], topology: Topology | None
) -> Any:
    """Flatten a `PerReplica`: stacked if its parts are alike, else part by part."""
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
    flat = [wide_numbers.check(p, _ARGUMENT) for p in flat]
    if any(not isinstance(p, (jax.Array, np.ndarray)) for p in flat):
        flat = [wide_numbers.as_jax(p, None, _ARGUMENT) for p in flat]
    leaves.extend(_put_on_all_devices(flat, topology))
    # A result must tell the parts of other workers from those of this one.
    is_spread = topology is not None and topology.is_spread
    return ("u", x.count, treedef, topology if is_spread else None)


def _put_on_all_devices(parts: list[Any], topology: Topology | None) -> list[Any]:
    """Return uneven parts, each on all devices, so that one program can take them."""
    if topology is None:
        return parts
    if topology.is_spread and jax_tapes.has_tracer(parts):
        return parts
    if topology.is_spread:
        # At once also while a program is traced, whose constants they are.
        with jax.ensure_compile_time_eval():
            return [topology.spread(p) for p in parts]
    placed: list[Any] = jax.device_put(parts, topology.replicated_sharding)
    return placed


def _flatten_other(x: object, leaves: list[Any], topology: Topology | None) -> Any:
    """Flatten a value of one of the rarer kinds."""
    if _is_text(x):
        return _TEXT
    if isinstance(x, (jax.Array, np.ndarray, np.generic)):
        leaves.append(wide_numbers.check(x, _ARGUMENT))
        return "a"
    if isinstance(x, distributed.Mirrored):
        flat, treedef = jax.tree.flatten(x.whole)
        leaves.extend(flat)
        return ("m", x.count, treedef)
    if isinstance(x, ArrayOperators):
        return ("s", type(x), Reference(x))
    # A `HostIterator`, whose module imports this one.
    if hasattr(x, "put_back"):
        return ("s", Source, Source(x))
    if nest.is_nested(x):
        parts = tuple(flatten(c, leaves, topology) for c in nest.children(x))
        return ("c", Template(x), parts)
    # Last of the containers: classes that only JAX can take apart.
    if not jax.tree_util.all_leaves([x]) and not nest.is_whole(x):
        flat, treedef = jax.tree.flatten(x)
        return ("x", treedef, tuple(flatten(c, leaves, topology) for c in flat))
    is_value = isinstance(x, _VALUES)
    return ("s", type(x), x if is_value else Reference(x))


def without_self(method: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a method as its caller sees it, without ``self``."""
    found = inspect.signature(method)
    return found.replace(parameters=list(found.parameters.values())[1:])


def flatten_arrays(args: tuple[Any, ...], leaves: list[Any]) -> Any:
    """Flatten arguments that are all arrays or stacked values, as `flatten` does.

    Return None for other arguments; `leaves` may have been appended to.
    """
    # One loop without calls, for the path of every compiled step.
    parts: list[Any] = []
    for x in args:
        kind = type(x)
        if kind is _ArrayImpl:
            leaves.append(x)
            parts.append("a")
        elif kind is distributed.PerReplica:
            # The fields as they are, as in `flatten`.
            stacked = x._stacked  # noqa: SLF001
            if type(stacked) is not _ArrayImpl:
                return None
            leaves.append(stacked)
            parts.append(("p", x._count, _LEAF))  # noqa: SLF001
        else:
            return None
    return ("t", tuple(parts))


def _special_float_key(x: float) -> Any:
    """Return a key that tells 0.0 from -0.0, and in which NaN is equal to itself."""
    if x != x:
        return _NAN
    return _NEGATIVE_ZERO if math.copysign(1.0, x) < 0 else _ZERO


def leaf_kinds(rest: Any) -> list[str]:
    """Return for each array of a flattened structure the letter of its kind."""
    if rest == "a":
        return ["a"]
    tag = rest[0]
    if tag in "pum":
        return [tag] * rest[2].num_leaves
    if tag == "s":
        return []
    return [k for part in rest[-1] for k in leaf_kinds(part)]


def find_iterators(rest: object) -> list[Any]:
    """Return the iterators in the rest of a flattened call, in order."""
    found: list[Any] = []
    if isinstance(rest, tuple):
        # What `_flatten_other` returns for an iterator.
        if len(rest) == 3 and rest[1] is Source:
            return [rest[2].iterator]
        # A call for every other part would cost more than all of the rest.
        for part in rest:
            if type(part) is tuple:
                found += find_iterators(part)
    return found


def rebuild(rest: Any, leaves: Any) -> Any:
    """Return the structure that `flatten` took apart.

    Args:
        rest: the rest that `flatten` returned.
        leaves: an iterator over the arrays.
    """
    tag = rest[0]
    if tag == "a":
        return next(leaves)
    if tag == "s":
        return rest[2].deref() if isinstance(rest[2], Reference) else rest[2]
    if tag in ("t", "l"):
        parts = [rebuild(r, leaves) for r in rest[1]]
        return tuple(parts) if tag == "t" else parts
    return _rebuild_other(tag, rest, leaves)


def _rebuild_other(tag: str, rest: Any, leaves: Any) -> Any:
    """Rebuild a value of one of the rarer kinds."""
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
        return distributed.PerReplica(tree, rest[3])
    return distributed.Mirrored.of(tree, rest[1])


def apply_specs(
    args: Sequence[Any], input_signature: Sequence[Any], is_host: bool = False
) -> tuple[Any, ...]:
    """Return arguments converted to arrays, once they match an `input_signature`.

    Args:
        args: the arguments.
        input_signature: a spec, or a structure of them, for each.
        is_host: whether they become arrays of NumPy's, with their numbers of 64 bits.

    Raises:
        TypeError: the number of arguments, a shape or an element type is wrong.
    """
    if len(args) != len(input_signature):
        raise TypeError(
            f"This function has an input_signature of {len(input_signature)} "
            f"argument(s) but was called with {len(args)}. Pass one argument for each "
            "spec of the input_signature."
        )
    pairs = enumerate(zip(args, input_signature, strict=True))
    return tuple(_apply_spec(a, s, f"argument {i}", is_host) for i, (a, s) in pairs)


def _check_parts(value: object, spec: PerReplicaSpec, where: str) -> None:
    """Raise `TypeError` unless a spec describes the parts of a value."""
    if not isinstance(value, distributed.PerReplica) or value.is_traced:
        return
    kinds = value.kinds()
    fits = len(kinds) == len(spec.specs) and all(
        one.describes(*kind) for one, kind in zip(spec.specs, kinds, strict=True)
    )
    if not fits:
        told = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in kinds)
        raise TypeError(f"{where} has the parts {told}, which do not match {spec}.")


def _apply_spec(value: Any, spec: object, where: str, is_host: bool) -> Any:
    """Return one argument as an array, once it matches its spec."""
    if nest.is_nested(spec):
        # A spec in a list may describe a tuple; `zip` compares the lengths then.
        nest.check_same(spec, value, 0) if type(spec) is type(value) else None
        parts = [
            _apply_spec(v, s, where, is_host)
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
        # NumPy takes a class of `bytes` for a number.
        is_one = isinstance(value, bytes)
        value = host_types.to_text(value) if is_one else np.asarray(value, object)
        value = host_numbers.to_host_array(value) if is_host else value
    elif not isinstance(value, jax.Array):
        _check_kind(value, spec, where)
        if is_host:
            value = host_numbers.to_host_array(np.asarray(value, spec.dtype))
        else:
            value = wide_numbers.as_jax(value, jax_types.usable_type(spec.dtype), where)
    if not spec.is_compatible_with(value):
        raise TypeError(
            f"{where} of shape {value.shape} and type {value.dtype} does not match the "
            f"input_signature {spec}."
        )
    return value


def _check_kind(value: object, spec: TensorSpec, where: str) -> None:
    """Raise `TypeError` if numbers would be cut off, or an element changes its type."""
    if not isinstance(value, (bool, int, float, complex, np.ndarray, np.generic)):
        return
    found = np.asarray(value).dtype
    is_kept = host_types.is_tensor(value) and found != spec.dtype
    if is_kept or not host_types.can_hold(spec.dtype, found):
        raise TypeError(
            f"{where} of type {found} does not match the input_signature {spec}. "
            f"Convert it first, as in unisono.cast(x, unisono.{spec.dtype})."
        )


# Results.


def flatten_result(result: object) -> tuple[Any, list[Any]]:
    """Return the structure of a result, and its arrays.

    Raises:
        TypeError: the result holds text, or arrays in an object of an unknown class.
    """
    flat: list[Any] = []
    rest = flatten(nest.map_structure(_convert_leaf, result), flat, None)
    return rest, [jnp.asarray(x) for x in flat]


def convert_host_result(result: _R) -> _R:
    """Return what a function gave on the host as a program returns it.

    Numbers are arrays, and variables the values that they have now.
    """
    converted: _R = nest.map_structure(_convert_number, read_variables(result))
    return converted


def read_variable(x: object) -> Any:
    """Return the value that a variable has now; anything else as it is."""
    if isinstance(x, jax.Array):
        # Also a part of a variable, which has `assign`: its value is that of then.
        return x
    if isinstance(x, variables.Variable):
        return reading.read(x)
    # A variable in parts, or one of Keras, whose module may not be loaded.
    kind = type(x)
    is_variable = hasattr(kind, "assign") and hasattr(kind, "__jax_array__")
    return x.__jax_array__() if is_variable else x  # type: ignore[attr-defined]


def read_variables(result: _R) -> _R:
    """Return a result with the values that variables have now in their place."""
    read: _R = nest.map_structure(read_variable, result)
    return read


def _convert_leaf(x: object) -> Any:
    """Return a leaf as an array; a variable or mirrored value gives its one value."""
    if isinstance(x, distributed.Mirrored):
        return x.whole
    x = read_variable(x)
    if isinstance(x, ArrayOperators):
        return operand(x)
    if isinstance(x, distributed.PerReplica) and x.topology is not None:
        # A value that was made elsewhere: the program runs on its devices.
        frames.frame().note_topology(x.topology)
    if isinstance(x, HostText):
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
    return _convert_number(x)


def _convert_number(x: object) -> Any:
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


def collector(outputs: object, mesh: Topology | None) -> Any:
    """Return a function that makes the caller's result of a program's arrays.

    Args:
        outputs: the structure that `flatten_result` returned.
        mesh: the devices of the program; None for one device.
    """
    if mesh is not None and mesh.is_spread:
        return lambda flat: _keep_local_parts(rebuild(outputs, iter(flat)), mesh)
    # The commonest result is one array; this saves calls at every step.
    if outputs == "a":
        return operator.itemgetter(0)
    return lambda flat: rebuild(outputs, iter(flat))


def _keep_local_parts(tree: object, mesh: Topology) -> Any:
    """Return a result without the parts that other processes hold."""

    def leaf(x: object) -> Any:
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
