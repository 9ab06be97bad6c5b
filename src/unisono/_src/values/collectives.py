"""Reduces, gathers and broadcasts arrays that replicas have one each of.

"One value per replica" has three forms: *parts*, a list with one array per replica
(eager code, uneven shapes); *local*, the replica's own value inside an SPMD program;
and *stacked*, one array whose first axis is the replicas.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

from unisono._src.foundation import errors, jax_internals, nest, wide_numbers
from unisono._src.foundation.options import ReduceOp
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import indexed_slices, jax_tapes
from unisono._src.values.array_operators import HasDtype, operand
from unisono._src.workers import eager_exchange

_ArrayImpl, _make_array = jax_internals.ArrayImpl, jax_internals.make_array

# JAX's public functions come to `batched_device_put` in the end, after questions that
# take longer than the transfer of a small array. Callers of `put_pieces` know their
# answers.
_put, _guards = jax_internals.batched_device_put, jax_internals.transfer_guards
_has_put = not jax_internals.find_missing(jax_internals.PIECES)

_T = TypeVar("_T")

# What has a number that does not fit, for messages.
_VALUE = "a value of a replica"
_WHOLE = PartitionSpec()


def put_pieces(
    aval: jax.core.ShapedArray,
    sharding: jax.sharding.Sharding,
    pieces: Sequence[object],
    devices: Sequence[jax.Device],
) -> jax.Array:
    """Return one array that is made of a piece on each device.

    Args:
        aval: the abstract value that an array with this sharding has.
        sharding: how the pieces make up the array.
        pieces: arrays of the host or of any device, one for each device.
        devices: of this process, in the order of the sharding.
    """
    if not _has_put:
        placed = jax.device_put(list(pieces), list(devices))
        return jax.make_array_from_single_device_arrays(aval.shape, sharding, placed)
    state = _guards.thread_local_state()
    before = state.explicit_device_put
    # As in `jax.device_put`: a guard against transfers that no one asked for
    # (`jax_transfer_guard`) lets it pass.
    state.explicit_device_put = True
    try:
        made: jax.Array = _put(aval, sharding, pieces, devices)
        return made
    finally:
        state.explicit_device_put = before


# Parts: one array per replica.


def as_array(x: object) -> Any:
    """Returns `x` as an array or `IndexedSlices`, for arithmetic between replicas.

    Raises:
        InvalidArgumentError: `x` is no number and no array of numbers.
    """
    if isinstance(x, (jax.Array, indexed_slices.IndexedSlices)):
        return x
    try:
        if x is None or isinstance(x, (str, bytes)):
            # Reported below: JAX raises other errors for these than for other objects.
            raise TypeError
        return wide_numbers.as_jax(x, None, _VALUE)
    except TypeError:
        raise errors.InvalidArgumentError(
            f"Expected numbers on every replica, received {x!r} of type "
            f"{type(x).__name__}, which cannot be combined. Pass numbers or arrays."
        ) from None


def is_key(x: HasDtype) -> bool:
    """Whether `x` is an array of random keys, with which no arithmetic is possible."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def check_reducible(dtype: DTypeLike, what: str) -> None:
    """Raises `InvalidArgumentError` unless values of `dtype` can be added."""
    if dtype == np.bool_ or not (
        jnp.issubdtype(dtype, jnp.number) or jnp.issubdtype(dtype, jnp.bool_)
    ):
        raise errors.InvalidArgumentError(
            f"{what} of {dtype} values is not defined; cast to a number first."
        )


def release(x: _T) -> _T:
    """Returns an array that JAX may copy to another device to compute with it.

    JAX refuses to combine arrays that were put on different devices; TensorFlow
    copies. The values of replicas are released, so that JAX copies them as well.

    Args:
        x: an array on one device; anything else is returned as it is.
    """
    if not isinstance(x, _ArrayImpl) or not x.committed:
        return x
    # The same buffer without the mark "committed", which no public function removes.
    made = _make_array(x.aval, x.sharding, [x], committed=False, _skip_checks=True)
    return made  # type: ignore[return-value]


def copy_weak_type(x: jax.Array, like: object) -> jax.Array:
    """Returns an array as one of a weak type if another one is, as Python's numbers.

    JAX forgets it when it makes an array of pieces. A program that was traced for a
    weak type does not take another one.
    """
    if not getattr(like, "weak_type", False) or x.weak_type:
        return x
    pieces = [shard.data for shard in x.addressable_shards]
    aval = x.aval.update(weak_type=True)
    return _make_array(aval, x.sharding, pieces, committed=True, _skip_checks=True)


def place(x: _T, device: jax.Device | None) -> _T:
    """Returns `x` on `device`; as it is if `device` is None or `x` is being traced."""
    if device is None or any(
        isinstance(a, jax.core.Tracer)
        and isinstance(jax_tapes.lower(a), jax.core.Tracer)
        for a in jax.tree.leaves(x)
    ):
        return x
    placed: _T = jax.tree.map(release, jax.device_put(x, device))
    return placed


def move_committed(x: _T, device: jax.Device) -> _T:
    """Returns a committed array on `device`; anything else as it is."""
    if not isinstance(x, _ArrayImpl) or not x.committed:
        return x
    return x if x.sharding.device_set == {device} else place(x, device)


def move_all(tree: _T, device: jax.Device) -> _T:
    """Returns a structure with its committed arrays on `device`."""
    moved: _T = nest.map_structure(lambda x: move_committed(x, device), tree)
    return moved


def hand_out(x: _T, devices: Sequence[jax.Device | None]) -> list[_T]:
    """Returns one copy of `x` per replica, each on the replica's device.

    Args:
        x: the value.
        devices: one per replica; all None while tracing.
    """
    if devices[0] is not None:
        return [place(x, d) for d in devices]
    # While tracing, too, each replica gets an object of its own: results that are one
    # object for all replicas would be merged into one value.
    return [x, *(jax.tree.map(jnp.copy, x) for _ in devices[1:])]


# Element types whose sums are the same in one program as in one operation at a time.
# With narrower types XLA keeps more digits inside a program than an array of the type
# can hold.
EXACT = frozenset(
    np.dtype(kind)
    for kind in ("float32", "float64", "int32", "int64", "uint32", "uint64")
)


@functools.partial(jax.jit, static_argnums=0)
def _sum_or_mean(op: ReduceOp, parts: Sequence[jax.Array]) -> jax.Array:
    total = functools.reduce(operator.add, parts)
    return total / len(parts) if op is ReduceOp.MEAN else total


@functools.partial(jax.jit, static_argnums=(0, 1))
def _update(
    sign: int, op: ReduceOp, old: jax.Array, parts: Sequence[jax.Array]
) -> jax.Array:
    total: jax.Array = _sum_or_mean(op, parts)
    if sign == 0:
        return total
    return old + total if sign > 0 else old - total


# Python's numbers below this one keep their meaning in each signed type of `EXACT`.
_SMALL = 2**31


def update_at_once(
    sign: int,
    op: ReduceOp,
    old: jax.Array,
    parts: Sequence[object],
    device: jax.Device,
) -> jax.Array | None:
    """Reduces `parts` and adds them to `old`, or replaces it, in one program.

    Args:
        sign: 1 to add, -1 to subtract, 0 to replace.
        op: how the parts become one.
        old: an array on `device`.
        parts: one per replica, or one for all, which may be a number of Python's.
        device: where to compute.

    Returns:
        The new array on `device`. None, and nothing is computed, if a part is no plain
        array with the shape and type of `old` and no number that it can hold, or if one
        program could round values of that type differently from single operations.
    """
    if old.dtype not in EXACT or (op is ReduceOp.MEAN and old.dtype.kind != "f"):
        return None
    placed = []
    for part in parts:
        if len(parts) == 1 and type(part) in (int, float):
            number: Any = part
            kinds = "if" if type(part) is int else "f"
            if old.shape or old.dtype.kind not in kinds or not abs(number) < _SMALL:
                return None
            part = jax.device_put(old.dtype.type(number), device)
        if not isinstance(part, _ArrayImpl) or part.dtype != old.dtype:
            return None
        if part.shape != old.shape:
            return None
        is_there = part.sharding.device_set == {device}
        placed.append(part if is_there else jax.device_put(part, device))
    updated: jax.Array = _update(sign, op, old, placed)
    return updated


def reduce_parts(
    op: ReduceOp, parts: Sequence[object], device: jax.Device | None = None
) -> Any:
    """Combines one value per replica into one value on `device`.

    A mean of integers is a float. `IndexedSlices` are concatenated.

    Raises:
        InvalidArgumentError: the values are no numbers, or differ in shape.
    """
    if indexed_slices.is_tree(parts[0]):
        return indexed_slices.map_tree(lambda *xs: reduce_parts(op, xs, device), *parts)
    values = [place(as_array(p), device) for p in parts]
    # TensorFlow's rules: sparse with sparse stays sparse, with dense it becomes dense.
    sparse = [isinstance(v, indexed_slices.IndexedSlices) for v in values]
    if all(sparse):
        scale = float(len(values)) if op is ReduceOp.MEAN else None
        return indexed_slices.concatenate(values, scale)
    if any(sparse):
        values = [v.to_dense() if s else v for v, s in zip(values, sparse, strict=True)]
    check_reducible(values[0].dtype, op.value)
    shapes = [v.shape for v in values]
    if len(set(shapes)) > 1:
        raise errors.InvalidArgumentError(
            "Inputs must have the same shape on every replica to be combined "
            f"element by element; received {shapes}. Pass an axis to "
            "Strategy.reduce, or gather instead."
        )
    # Python's numbers follow the type of the others.
    if len({v.dtype for v in values if not v.weak_type}) > 1:
        raise errors.InvalidArgumentError(
            "Inputs must have the same element type on every replica to be combined; "
            f"received {[str(v.dtype) for v in values]}. Cast them to one type."
        )
    if len(values) == 1:
        return values[0]
    # One program instead of an operation for each replica, where it rounds alike.
    if device is not None and all(v.dtype in EXACT for v in values):
        return release(_sum_or_mean(op, values))
    # In replica order, so that every worker gets the same sum to the last bit.
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total / len(values) if op is ReduceOp.MEAN else total


def check_gather(shape: Sequence[int], axis: int) -> None:
    """Raises `ValueError` unless values of `shape` can be gathered along `axis`."""
    if not 0 <= axis < len(shape):
        raise ValueError(
            f"Cannot gather values of shape {tuple(shape)} along axis {axis}: expected "
            f"0 <= axis < {len(shape)}. Scalars need a leading axis; negative axes are "
            "not supported."
        )


def _check_not_bool(x: HasDtype) -> None:
    if x.dtype == np.bool_:
        raise TypeError("bool values cannot be gathered; cast them to int first.")


def gather_parts(
    parts: Sequence[Any], axis: int, device: jax.Device | None = None
) -> jax.Array:
    """Concatenates one array per replica along `axis`, in replica order.

    Raises:
        ValueError: the arrays do not have that axis.
        InvalidArgumentError: they differ in another axis.
        TypeError: they are of type bool.
    """
    values = [place(as_array(p), device) for p in parts]
    for v in values:
        check_gather(v.shape, axis)
        _check_not_bool(v)
    _check_same_rest([v.shape for v in values], axis)
    return jnp.concatenate(values, axis)


def _check_same_rest(shapes: list[tuple[int, ...]], axis: int) -> None:
    """Raises `InvalidArgumentError` if shapes differ in another axis than `axis`."""
    if len({len(shape) for shape in shapes}) > 1:
        wrong = "Ranks of all input tensors should match"
    else:
        sizes = enumerate(zip(*shapes, strict=True))
        differ = [i for i, each in sizes if i != axis and len(set(each)) > 1]
        if not differ:
            return
        wrong = f"Dimension {differ[0]} in both shapes must be equal"
    # "Shape mismatch" is what TensorFlow finds while a program runs.
    raise errors.InvalidArgumentError(
        f"Shape mismatch: {wrong}. Values gathered along axis {axis} may differ in "
        f"that axis only; received shapes {shapes}."
    )


def _axes(axis: object, ndim: int) -> tuple[int, ...]:
    """Returns one or several axes as a tuple of non-negative ones."""
    if isinstance(axis, list):
        raise TypeError("unhashable type: 'list'; pass several axes as a tuple.")
    found = tuple(axis) if isinstance(axis, tuple) else (axis,)
    for a in found:
        if not -ndim <= a < ndim:
            raise ValueError(
                f"Invalid reduction dimension {a} for input with {ndim} dimensions."
            )
    return tuple(a % ndim for a in found)


def sum_and_count(op: ReduceOp, axis: object, x: object) -> tuple[jax.Array, jax.Array]:
    """Returns one replica's sum along `axis`, and of how many elements it is."""
    if isinstance(x, Mapping):
        raise TypeError(
            f"reduce along an axis takes one array, received a dict of {sorted(x)}. "
            "Reduce each of them by itself, or along no axis (axis=None)."
        )
    if nest.is_nested(x):
        x = jnp.stack(
            [wide_numbers.as_jax(operand(c), None, _VALUE) for c in nest.children(x)]
        )
    if isinstance(x, indexed_slices.IndexedSlices):
        # An axis is one of the larger array, as in TensorFlow.
        x = x.to_dense()
    x = wide_numbers.as_jax(operand(x), None, _VALUE)
    check_reducible(x.dtype, op.value)
    axes = _axes(axis, x.ndim)
    count = np.float32(np.prod([x.shape[a] for a in axes]))
    total = jnp.sum(x, axes)
    # The sum of small integers has their type; the mean is that of their true sum.
    return total.astype(x.dtype) if op is ReduceOp.SUM else total, jnp.asarray(count)


# Local: inside an SPMD program.


def as_input(x: object) -> jax.Array:
    """Returns a captured value such that it can be an input of the traced program.

    Workers may capture different values. JAX sums a value that it knows without asking
    the other devices, and compiles a single number into the program.

    Args:
        x: a number or an array; one that is traced is returned as it is.
    """
    if isinstance(x, jax.core.Tracer):
        return x
    with jax.ensure_compile_time_eval():
        # With an axis it stays a constant of the trace, of which `value_sources`
        # makes an input; a single number would be written into the equations.
        row = wide_numbers.as_jax(x, None, _VALUE)[None]
    return row[0]


def reduce_local(op: ReduceOp, x: object, replicas: int) -> Any:
    """Combines the replicas' own values with an XLA collective."""
    if indexed_slices.is_tree(x):
        return indexed_slices.map_tree(lambda a: reduce_local(op, a, replicas), x)
    if isinstance(x, indexed_slices.IndexedSlices):
        # As in TensorFlow: rows are joined in replica order, and equal indices stay.
        values = x.values / replicas if op is ReduceOp.MEAN else x.values
        return indexed_slices.IndexedSlices(
            jax.lax.all_gather(values, AXIS, tiled=True),
            jax.lax.all_gather(x.indices, AXIS, tiled=True),
            x.dense_shape,
        )
    x = as_input(x)
    check_reducible(x.dtype, op.value)
    total = jax.lax.psum(x, AXIS)
    return total / replicas if op is ReduceOp.MEAN else total


def gather_local(x: object, axis: int) -> jax.Array:
    """Concatenates the replicas' own values along `axis`."""
    x = wide_numbers.as_jax(x, None, _VALUE)
    check_gather(x.shape, axis)
    _check_not_bool(x)
    whole: jax.Array = jax.lax.all_gather(x, AXIS, axis=axis, tiled=True)
    return whole


def split_local(x: _T, replicas: int) -> tuple[_T, ...]:
    """Returns the values of all replicas, on each of them."""
    every = jax.tree.map(lambda a: jax.lax.all_gather(a, AXIS), x)
    return tuple(jax.tree.map(lambda a, i=i: a[i], every) for i in range(replicas))


def pick_local(x: object, index: int) -> jax.Array:
    """Returns the value of replica `index`, on every replica."""
    x = wide_numbers.as_jax(x, None, _VALUE)
    found: jax.Array
    if is_key(x):
        data = pick_local(jax.random.key_data(x), index)
        found = jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
        return found
    own = jax.lax.axis_index(AXIS) == index
    if x.dtype == np.bool_:
        return pick_local(x.astype(jnp.int32), index).astype(np.bool_)
    # A sum of one value and zeros: JAX can broadcast from one replica on GPUs only.
    found = jax.lax.psum(jnp.where(own, x, jnp.zeros_like(x)), AXIS)
    return found


# Stacked: in a program that sees all replicas.


def reduce_stacked(op: ReduceOp, x: object, topology: Topology) -> Any:
    """Combines the rows of a stacked value with the collective a replica would use."""

    def reduce(row: object) -> Any:
        own = jax.tree.map(lambda v: v[0], row)
        return reduce_local(op, own, topology.replicas)

    return apply_on_replicas(x, reduce, topology, PartitionSpec(AXIS))


# JAX lists the pieces of an array when it is first asked for them. If two threads ask
# at once, the list has pieces twice from then on, and reads give wrong numbers.
_listing = threading.RLock()


def shards(x: jax.Array, topology: Topology) -> Sequence[jax.Array]:
    """Returns the pieces of `x` on the replicas of this process, in replica order.

    A replica of several devices has the piece of its first one.

    Args:
        x: an array with a sharding of the topology.
        topology: the replicas.
    """
    if topology.is_one_device:
        return (x,)
    # JAX keeps the pieces in the order of the mesh, replica by replica.
    if not isinstance(x, _ArrayImpl):
        # Random keys are a class of their own.
        return [s.data for s in x.addressable_shards][:: topology.num_logical_devices]
    # The public `addressable_shards` makes an object for each piece at every read.
    with _listing:
        pieces: Sequence[jax.Array] = jax_internals.pieces_of(x)
    return pieces[:: topology.num_logical_devices]


def own_copy(x: _T) -> _T:
    """Returns this process's copy of a value that all replicas hold."""
    if not isinstance(x, _ArrayImpl) or x.is_fully_addressable:
        return x
    own: Any = x.addressable_data(0)
    return release(own)  # type: ignore[no-any-return]


def first_row(stacked: object) -> int:
    """Returns the number of the first row that this process holds."""
    leaves = jax.tree.leaves(stacked)
    # XLA does not split an array without elements.
    leaf = next((x for x in leaves if x.size), leaves[0])
    return min(s.index[0].start or 0 for s in leaf.addressable_shards)


def apply_on_replicas(
    x: _T,
    combine: Callable[[_T], object],
    topology: Topology,
    spec: PartitionSpec = _WHOLE,
) -> Any:
    """Applies a collective to a value, and returns the result of any replica.

    Args:
        x: the value.
        combine: the collective, called inside a `shard_map`.
        topology: the replicas.
        spec: how `x` is split; the default is for a value of which each worker has its
            own.
    """
    # JAX is told that what is not split is the same everywhere, and does not look.
    return jax.shard_map(
        combine, mesh=topology.mesh, in_specs=spec, out_specs=_WHOLE, check_vma=False
    )(x)


# Between workers, outside programs.

_NO_MESH = jax.sharding.AbstractMesh((), ())


def all_parts(parts: Sequence[Any], topology: Topology, point: str) -> list[Any]:
    """Returns the values of all replicas, those of other workers included.

    All workers must call it.

    Args:
        parts: arrays or `IndexedSlices`, one per replica of this process, or one for
            all of them; then the result has one per worker.
        topology: the replicas.
        point: the purpose in the user's terms, for messages.
    """
    if len(parts) == topology.replicas:
        return list(parts)
    # At once also while a program is traced, even inside its `shard_map`: the values
    # are constants of the program.
    with jax.ensure_compile_time_eval(), jax.sharding.use_abstract_mesh(_NO_MESH):
        return _exchange_parts(parts, topology, point)


def _exchange_parts(parts: Sequence[Any], topology: Topology, point: str) -> list[Any]:
    """Returns the values of all replicas, which the workers send each other."""
    # Only arrays travel. All parts have one structure, so that of the first serves all.
    flat = jax.tree.leaves([as_array(p) for p in parts])
    sparse = [isinstance(p, indexed_slices.IndexedSlices) for p in parts]
    point = f"{point} ({'sparse' if any(sparse) else 'dense'})"
    every = eager_exchange.gather(topology, point, flat)
    size = len(flat) // len(parts)
    one: Any = jax.tree.structure(as_array(parts[0]))
    found: list[Any] = []
    for arrays in every:
        rows = [arrays[i : i + size] for i in range(0, len(arrays), size)]
        found.extend(one.unflatten([jnp.asarray(a) for a in row]) for row in rows)
    return found


def common_kinds(treedef: object, kinds: _T, topology: Topology) -> _T | None:
    """Returns `kinds` if all workers have the same, else None."""
    text = "" if kinds is None else f"{treedef} {kinds}"
    own = np.frombuffer(text.encode(), np.uint8)
    every = eager_exchange.gather(topology, "shapes of a per-replica value", [own])
    # An empty text says that the parts of a worker differ among themselves.
    same = all(np.array_equal(e[0], own) for e in every)
    return kinds if same and text else None
