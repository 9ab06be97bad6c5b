"""Values that live on replicas: `PerReplica`, `Mirrored`, and how they merge."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from unisono._src.foundation import ambient, nest
from unisono._src.foundation.public_names import publish
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import collectives
from unisono._src.values.array_operators import ArrayOperators, StandsForArray


class DistributedValues:
    """Base of everything that has a value on each replica."""

    # No `abc.ABC`: its `isinstance` is slower, and steps ask often.
    @property
    @abc.abstractmethod
    def values(self) -> tuple[Any, ...]:
        """One value per replica, in replica order."""
        raise NotImplementedError


def owned(x: Any) -> Any:
    """`x`, or a copy of it if it is NumPy memory that its owner may change.

    JAX may share such memory on CPU, and may read it only later on other devices.
    """
    return np.array(x) if isinstance(x, np.ndarray) else x


def is_traced(tree: Any) -> bool:
    """Whether any array in `tree` stands for a value of a program being traced."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))


def describe(x: Any) -> str:
    """TensorFlow's rendering of a value inside a container."""
    if isinstance(x, jax.core.Tracer):
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, traced>"
    if isinstance(x, jax.Array) and collectives.is_key(x):
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, {x}>"
    if isinstance(x, jax.Array):
        shown = x.item() if x.ndim == 0 else np.asarray(x)
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, numpy={shown!r}>"
    return repr(x)


def _describe_short(x: Any) -> str:
    is_concrete = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    if is_concrete and not collectives.is_key(x):
        return f"tf.Tensor({np.asarray(x)}, shape={x.shape}, dtype={x.dtype})"
    return str(x) if not isinstance(x, jax.core.Tracer) else describe(x)


def render(name: str, parts: Sequence[Any], one: Callable[[Any], str]) -> str:
    """``Name:{`` one line per replica ``}``."""
    lines = ",\n".join(f"  {i}: {one(p)}" for i, p in enumerate(parts))
    return f"{name}:{{\n{lines}\n}}"


class PerReplica(StandsForArray, DistributedValues):
    """A map from replica to value; the values may differ, in shape too.

    Kept in one of three forms and converted on demand: *parts*, a tuple; *stacked*,
    arrays with a leading replica axis (what compiled code takes); *local*, the own
    value inside a program that is traced once for all replicas.

    >>> PerReplica([1, 2])
    PerReplica:{
      0: 1,
      1: 2
    }
    """

    def __init__(self, values: Sequence[Any], topology: Topology | None = None) -> None:
        self._parts: tuple[Any, ...] | None = tuple(values)
        self._topology = topology
        self._count, self._first = _extent(self._parts, topology)
        self._stacked: Any = None
        self._local: Any = None

    @classmethod
    def from_stacked(cls, stacked: Any, count: int) -> PerReplica:
        """The form that compiled code takes and gives."""
        self = cls(())
        self._parts, self._stacked, self._count = None, stacked, count
        return self

    @classmethod
    def from_local(cls, local: Any, count: int) -> PerReplica:
        """The form inside an SPMD program."""
        self = cls(())
        self._parts, self._local, self._count = None, local, count
        return self

    @property
    def local(self) -> Any:
        """The own value in an SPMD program, or None in the other forms."""
        return self._local

    @property
    def count(self) -> int:
        """How many replicas there is a value for, here or on other workers."""
        return self._count

    @property
    def values(self) -> tuple[Any, ...]:
        """One value per replica of this worker, in replica order."""
        if self._parts is None:
            if self._local is not None:
                return collectives.split_local(self._local, self._count)
            if is_traced(self._stacked):
                return _unstack(self._stacked, self._count)
            # Concrete values stay so even when a program is being traced.
            with jax.ensure_compile_time_eval():
                self._parts = _unstack(self._stacked, self._count)
            if len(self._parts) < self._count:
                self._first = collectives.first_row(self._stacked)
        return self._parts

    @property
    def is_stacked(self) -> bool:
        """Whether it is kept as one array, with a row for each replica everywhere."""
        return self._stacked is not None

    @property
    def is_traced(self) -> bool:
        """Whether this stands for values of a program being traced."""
        held = self._parts if self._stacked is None else self._stacked
        return self._local is not None or is_traced(held)

    def kinds(self) -> list[tuple[tuple[int, ...], Any]]:
        """Shape and element type of the value of each replica of this worker."""
        if isinstance(self._stacked, jax.Array):
            sharding = self._stacked.sharding
            here, every = sharding.addressable_devices, sharding.device_set
            rows = self._stacked.shape[0] * len(here) // len(every)
            return [(self._stacked.shape[1:], self._stacked.dtype)] * rows
        return [(jnp.shape(x), getattr(x, "dtype", None)) for x in self.values]

    @property
    def first(self) -> int:
        """The replica that the first of `values` belongs to."""
        return self._first if self.values else 0

    @property
    def topology(self) -> Topology | None:
        """The replicas whose values these are, if that is known."""
        return self._topology

    def stacked(self, topology: Topology) -> Any:
        """Arrays with a leading replica axis, or None if the values are uneven."""
        if self._stacked is not None or self._local is not None:
            return self._stacked
        parts = self.values
        if is_traced(parts):
            return _stack(parts, topology)
        with jax.ensure_compile_time_eval():
            self._stacked = _stack(parts, topology)
        return self._stacked

    def complete(self, topology: Topology) -> PerReplica:
        """The same with the values of all workers, which must all ask for them."""
        if len(self.values) == self._count:
            return self
        with jax.ensure_compile_time_eval():
            parts = collectives.all_parts(self.values, topology, "uneven values")
        return PerReplica(parts, topology)

    def own(self) -> Any:
        """The value of the replica that asks."""
        frame = ambient.current()
        if frame.mode != ambient.REPLICA or frame.port is None:
            raise ValueError(
                "It looks like you are using a PerReplica object while not inside a "
                "replica context, which is not supported. Try running your op or "
                "function inside a replica context by using `strategy.run`, or reduce "
                "it first."
            )
        if not frame.port.is_spmd:
            return select(self, frame.copy or 0, frame.port.replicas)
        if self._local is not None:
            return self._local
        index = jax.lax.axis_index(AXIS)
        topology = frame.placement.topology
        if self._stacked is None or (
            topology.is_spread and not is_traced(self._stacked)
        ):
            # What other workers hold cannot be part of a program as it is.
            every = self.complete(topology).values
            return jnp.stack([jnp.asarray(p) for p in every])[index]
        return jax.tree.map(lambda a: a[index], self._stacked)

    def __jax_array__(self) -> Any:
        return self.own()

    def __repr__(self) -> str:
        if self._local is not None:
            return f"PerReplica:{{own: {describe(self._local)}}}"
        return render("PerReplica", self.values, describe)

    def __str__(self) -> str:
        if self._local is not None:
            return repr(self)
        return render("PerReplica", self.values, _describe_short)


class Mirrored(ArrayOperators, DistributedValues):
    """A value that is the same on every replica; usable like an array anywhere.

    >>> Mirrored([3, 3]) + 1
    Array(4, dtype=int32, weak_type=True)
    """

    def __init__(self, values: Sequence[Any], topology: Topology | None = None) -> None:
        self._parts: tuple[Any, ...] | None = tuple(values)
        self._count, self._first = _extent(self._parts, topology)
        self._whole: Any = None

    @classmethod
    def of(cls, whole: Any, count: int) -> Mirrored:
        """A mirrored value kept as one array that all replicas hold."""
        self = cls(())
        self._parts, self._whole, self._count = None, whole, count
        return self

    @property
    def count(self) -> int:
        """How many replicas hold the value, here or on other workers."""
        return self._count

    @property
    def whole(self) -> Any:
        """The value as one array: replicated, or traced."""
        return self.values[0] if self._whole is None else self._whole

    @property
    def values(self) -> tuple[Any, ...]:
        """One value per replica, in replica order."""
        if self._parts is None:
            if is_traced(self._whole):
                return tuple(collectives.hand_out(self._whole, [None] * self._count))
            with jax.ensure_compile_time_eval():
                self._first, self._parts = _copies(self._whole, self._count)
        return self._parts

    @property
    def first(self) -> int:
        """The replica that the first of `values` belongs to."""
        return self._first if self.values else 0

    def __jax_array__(self) -> Any:
        frame = ambient.current()
        if frame.mode == ambient.REPLICA and isinstance(frame.copy, int):
            return self.values[frame.copy - self.first]
        return self.values[0]

    def numpy(self) -> np.ndarray:
        """The value as a NumPy array."""
        return np.array(self.values[0])

    def __repr__(self) -> str:
        return render("Mirrored", self.values, describe)

    def __str__(self) -> str:
        return render("Mirrored", self.values, _describe_short)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return jnp.shape(self.values[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the value."""
        return jnp.result_type(self.values[0])


def _flatten(tree: Any) -> tuple[list[Any], Any]:
    return jax.tree.flatten(tree)


def _extent(parts: Sequence[Any], topology: Topology | None) -> tuple[int, int]:
    """For how many replicas there are values, and the first of those given here."""
    if topology is None or not topology.is_spread or len(parts) != topology.copies:
        return len(parts), 0
    return topology.replicas, topology.first


def _copies(whole: Any, count: int) -> tuple[int, tuple[Any, ...]]:
    """The copies of this process, after the replica of the first."""
    first, here = 0, count

    def split(x: Any) -> list[Any]:
        nonlocal first, here
        if isinstance(x, jax.Array) and len(x.sharding.device_set) >= count > 1:
            mesh = x.sharding.mesh  # type: ignore[attr-defined]
            if not x.is_fully_replicated:
                x = jax.device_put(x, NamedSharding(mesh, PartitionSpec()))
            by_device = {s.device: s.data for s in x.addressable_shards}
            order = list(mesh.devices.reshape(count, -1)[:, 0])
            found = [i for i, d in enumerate(order) if d in by_device]
            first, here = found[0], len(found)
            return [collectives.release(by_device[order[i]]) for i in found]
        return [x] * count

    leaves, treedef = _flatten(whole)
    columns = [split(x) for x in leaves]
    every = (treedef.unflatten([c[i] for c in columns]) for i in range(here))
    return first, tuple(every)


def _unstack(stacked: Any, count: int) -> tuple[Any, ...]:
    def split(x: Any) -> list[Any]:
        if isinstance(x, jax.core.Tracer) or len(x.sharding.device_set) == 1:
            return [x[i] for i in range(count)]
        own = [s for s in x.addressable_shards if s.replica_id == 0]
        found = sorted(own, key=lambda s: s.index[0].start or 0)
        pieces = [s.data.reshape(s.data.shape[1:]) for s in found]
        return [collectives.release(p) for p in pieces]

    leaves, treedef = _flatten(stacked)
    columns = [split(x) for x in leaves]
    here = min(map(len, columns), default=count)
    return tuple(treedef.unflatten([c[i] for c in columns]) for i in range(here))


def _stack(parts: Sequence[Any], topology: Topology) -> Any:
    flat = [_flatten(p) for p in parts]
    treedef = flat[0][1]
    kinds = None
    if all(f[1] == treedef for f in flat):
        columns = list(zip(*(f[0] for f in flat), strict=True))
        kinds = _kinds(columns)
    if topology.is_spread and not is_traced(parts):
        kinds = collectives.all_agree(treedef, kinds, topology)
    if kinds is None:
        return None
    stacked = [_stack_column(column, topology) for column in columns]
    return treedef.unflatten(stacked)


def _kinds(columns: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Shape and type of each column of arrays; None if there is not one of each."""
    numbers = (jax.Array, np.ndarray, np.generic, int, float, bool, complex)
    kinds = []
    for column in columns:
        if not all(isinstance(x, numbers) for x in column):
            return None
        found = {(jnp.shape(x), jnp.result_type(x)) for x in column}
        if len(found) > 1:
            return None
        kinds.append(found.pop())
    return kinds


def _stack_column(column: Sequence[Any], topology: Topology) -> Any:
    if is_traced(column):
        return jnp.stack([jnp.asarray(x) for x in column])
    if topology.is_one_device:
        only = column[0]
        row = only[None] if isinstance(only, jax.Array) else _numpy_row(only)
        return jax.device_put(row, topology.stacked)
    rows = [
        x.reshape((1, *x.shape)) if isinstance(x, jax.Array) else _numpy_row(x)
        for x in column
    ]
    return topology.stack(rows)


def _numpy_row(x: Any) -> np.ndarray:
    return np.array(x, jax.dtypes.canonicalize_dtype(jnp.result_type(x)))[None]


def _flatten_per_replica(x: PerReplica) -> tuple[tuple[Any, ...], Any]:
    frame = ambient.current()
    if frame.mode == ambient.REPLICA and frame.port is not None:
        return (x.own(),), None
    if x._stacked is not None:
        return (x._stacked,), ("stacked", x._count)
    if x._local is not None:
        return (x._local,), ("local", x._count)
    return x.values, ("parts", x._count, x.first)


def _unflatten_per_replica(aux: Any, children: Sequence[Any]) -> Any:
    if aux is None:
        return children[0]
    form, count, *first = aux
    if form == "stacked":
        return PerReplica.from_stacked(children[0], count)
    if form == "local":
        return PerReplica.from_local(children[0], count)
    made = PerReplica(children)
    made._count, made._first = count, first[0]
    return made


def _flatten_mirrored(x: Mirrored) -> tuple[tuple[Any, ...], Any]:
    frame = ambient.current()
    if frame.mode == ambient.REPLICA and frame.port is not None:
        return (x.__jax_array__(),), None
    return (x.whole,), x._count


def _unflatten_mirrored(aux: Any, children: Sequence[Any]) -> Any:
    return children[0] if aux is None else Mirrored.of(children[0], aux)


# `jax.numpy` is compiled, so it takes its arguments apart before it asks them for
# their array: in a replica the only child of a distributed value is the own part.
jax.tree_util.register_pytree_node(
    PerReplica, _flatten_per_replica, _unflatten_per_replica
)
jax.tree_util.register_pytree_node(Mirrored, _flatten_mirrored, _unflatten_mirrored)


def check_count(x: PerReplica | Mirrored, replicas: int) -> None:
    """Raise `IndexError` if a value was made for another number of replicas."""
    if x.count != replicas:
        raise IndexError(
            f"{type(x).__name__} has {x.count} values but the strategy has {replicas} "
            "replicas; pass one value per replica, made by this strategy, or pass a "
            "plain value to share it."
        )


def select(x: PerReplica | Mirrored, replica: int, replicas: int) -> Any:
    """The value of one replica, which must be in this process.

    Raises:
        IndexError: the value was made for another number of replicas.
    """
    check_count(x, replicas)
    return x.values[replica - x.first]


def unwrap(tree: Any, replica: int, replicas: int) -> Any:
    """`tree` as one replica sees it; variables stay whole."""

    def leaf(x: Any) -> Any:
        if isinstance(x, (PerReplica, Mirrored)):
            return select(x, replica, replicas)
        return x

    return nest.map_leaves(leaf, tree, StandsForArray)


def container_of(x: Any) -> Any:
    """The distributed variable that `x` is a component of, or None."""
    find = getattr(x, "_distributed_container", None)
    return find() if find is not None else None


def regroup(
    results: Sequence[Any],
    wrap: Callable[[Sequence[Any]], Any] = PerReplica,
    always_wrap: bool = False,
) -> Any:
    """Merge one result per replica, leaf by leaf, by TensorFlow's rules.

    Equal objects stay that object, components become their variable, and different
    objects are wrapped. The structure of replica 0 decides.

    Raises:
        AssertionError: the structures differ.
    """
    first = results[0]
    if isinstance(first, (list, tuple, Mapping)):
        for i, other in enumerate(results[1:], 1):
            nest.check_same(first, other, i)
        if isinstance(first, Mapping):
            columns = [[r[k] for r in results] for k in nest.keys(first)]
        else:
            columns = [list(c) for c in zip(*results, strict=True)]
        return nest.rebuild(first, [regroup(c, wrap, always_wrap) for c in columns])
    if always_wrap:
        return wrap(results)
    container = container_of(first)
    if container is not None:
        if any(container_of(r) is not container for r in results):
            raise AssertionError(
                "The replicas returned components of different variables where one "
                f"variable was expected; replica 0 returned a component of {container}."
            )
        return container
    if all(r is first for r in results):
        return first
    return wrap(results)


publish("unisono.distribute", DistributedValues, Mirrored, PerReplica)
