"""Values that live on replicas: `PerReplica`, `Mirrored`, how they split and merge."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from unisono._src.foundation import ambient, nest, printable, wide_numbers
from unisono._src.foundation.process_bound import ProcessBound
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import collectives, jax_tapes
from unisono._src.values.array_operators import (
    ArrayOperators,
    StandsForArray,
    take,
    unpack_scalar,
)


class DistributedValues(ProcessBound):
    """Base class of all types that have one value on each replica.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> x = strategy.experimental_distribute_values_from_function(
    ...     lambda context: 10 * context.replica_id_in_sync_group
    ... )
    >>> isinstance(x, DistributedValues), x.values
    (True, (0, 10))
    """

    _instead = (
        "Copy or pickle the values of the replicas, as NumPy arrays of "
        "strategy.experimental_local_results(...); save variables in a checkpoint."
    )

    # No `abc.ABC`: its `isinstance` is slower, and steps ask often.
    @property
    @abc.abstractmethod
    def values(self) -> tuple[Any, ...]:
        """The values of the replicas, in replica order."""
        raise NotImplementedError


class PerReplica(StandsForArray, DistributedValues):
    """One value per replica; the values may differ, also in shape.

    If an argument of `Strategy.run` has this type, each replica gets its own value.
    `run` returns this type if the replicas return different objects.

    The values are stored in one of three forms and converted on demand: *parts*, a
    tuple; *stacked*, arrays with a leading replica axis, which compiled code takes and
    returns; *local*, the replica's own value inside a program that is traced once for
    all replicas.

    Args:
        values: one per replica of this process, in replica order.
        topology: the replicas; None for one replica per value.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> strategy.run(lambda x: x + 1, args=(PerReplica([1, 20]),))
    PerReplica:{
      0: 2,
      1: 21
    }
    """

    def __init__(self, values: Sequence[Any], topology: Topology | None = None) -> None:
        self._parts: tuple[Any, ...] | None = tuple(values)
        self._topology = topology
        self._count, self._first = _extent(self._parts, topology)
        self._stacked: Any = None
        self._local: Any = None
        self._every: PerReplica | None = None

    @classmethod
    def from_stacked(
        cls, stacked: object, count: int, topology: Topology | None = None
    ) -> PerReplica:
        """Returns values that are stored as arrays with a leading replica axis.

        Args:
            stacked: a pytree of such arrays.
            count: how many replicas there are, on all workers.
            topology: the replicas; None if they are not known.
        """
        self = cls(())
        self._topology = topology
        self._parts, self._stacked, self._count = None, stacked, count
        return self

    @classmethod
    def from_local(cls, local: object, count: int) -> PerReplica:
        """Returns values for an SPMD program, which sees only the replica's own value.

        Args:
            local: the replica's own value.
            count: how many replicas there are, on all workers.
        """
        self = cls(())
        self._parts, self._local, self._count = None, local, count
        return self

    @property
    def local(self) -> Any:
        """The replica's own value in an SPMD program, or None in the other forms."""
        return self._local

    @property
    def count(self) -> int:
        """The number of replicas that have a value, on all workers."""
        return self._count

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of this worker's replicas, in replica order.

        Inside a `unisono.function` they may be the values of all workers; use
        `Strategy.experimental_local_results` to get those of this worker.
        """
        if self._parts is None:
            if self._local is not None:
                # Gathered by a collective: every replica then has the values of all.
                return collectives.split_local(self._local, self._count)
            if jax_tapes.has_tracer(self._stacked):
                return _unstack(self._stacked, self._count)
            # Computed at once also while a program is being traced: tracers must not
            # be kept in an object that outlives the program.
            with jax.ensure_compile_time_eval():
                self._parts = _unstack(self._stacked, self._count)
            if len(self._parts) < self._count:
                self._first = collectives.first_row(self._stacked)
        return self._parts

    @property
    def is_stacked(self) -> bool:
        """Whether the values are stored as arrays with a row for every replica."""
        return self._stacked is not None

    def holds(self, kind: type) -> bool:
        """Returns whether a value has a type, such as `IndexedSlices`, in any form."""
        held = (self._stacked, self._local, *(self._parts or ()))
        return any(isinstance(x, kind) for x in held)

    @property
    def is_traced(self) -> bool:
        """Whether the values belong to a program that is being traced."""
        held = self._parts if self._stacked is None else self._stacked
        return self._local is not None or jax_tapes.has_tracer(held)

    def kinds(self) -> list[tuple[tuple[int, ...], Any]]:
        """Returns the shape and element type of each of this worker's values."""
        if isinstance(self._stacked, jax.Array):
            # Read off the sharding: splitting the array would copy every row.
            sharding = self._stacked.sharding
            here, every = sharding.addressable_devices, sharding.device_set
            rows = self._stacked.shape[0] * len(here) // len(every)
            return [(self._stacked.shape[1:], self._stacked.dtype)] * rows
        return [(jnp.shape(x), getattr(x, "dtype", None)) for x in self.values]

    @property
    def first(self) -> int:
        """The index of the replica of the first of `values`."""
        return self._first if self.values else 0

    @property
    def topology(self) -> Topology | None:
        """The replicas that the values belong to, or None if not known."""
        return self._topology

    def stacked(self, topology: Topology) -> Any:
        """Returns the values as arrays with a leading replica axis.

        Args:
            topology: the replicas.

        Returns:
            A pytree of arrays; None if the values differ in structure, shape or type.
        """
        if self._stacked is not None or self._local is not None:
            return self._stacked
        parts = self.values
        if jax_tapes.has_tracer(parts):
            return _stack(parts, topology)
        # At once, as in `values`: the result is kept in this object.
        with jax.ensure_compile_time_eval():
            self._stacked = _stack(parts, topology)
        return self._stacked

    def complete(self, topology: Topology) -> PerReplica:
        """Returns the values of all workers; all workers must call it."""
        if len(self.values) == self._count:
            return self
        if self._every is None:
            parts = collectives.all_parts(self.values, topology, "uneven values")
            # Kept: asking the other workers again would be another meeting.
            self._every = PerReplica(parts, topology)
        return self._every

    def own(self) -> Any:
        """Returns the value of the calling replica.

        Raises:
            ValueError: it is called outside a replica context.
        """
        frame = ambient.current()
        if frame.mode != ambient.REPLICA or frame.port is None:
            raise ValueError(
                "It looks like you are using a PerReplica object while not inside a "
                "replica context, which is not supported. Try running your op or "
                "function inside a replica context by using `strategy.run`, or reduce "
                "it first."
            )
        topology: Any = frame.placement.topology if frame.placement else None
        if not frame.port.is_spmd:
            whole = self
            if topology is not None and topology.is_spread and frame.state is not None:
                # The replicas of all workers make a program in turn.
                whole = self.complete(topology)
            return select(whole, frame.copy or 0, frame.port.replicas)
        if self._local is not None:
            return self._local
        index = jax.lax.axis_index(AXIS)
        if self._stacked is None or (
            topology.is_spread and not jax_tapes.has_tracer(self._stacked)
        ):
            # Arrays that are partly on other workers cannot be constants of a program:
            # the rows are fetched while it is traced, and each replica picks its own.
            every = self.complete(topology).values
            return jnp.stack([jnp.asarray(p) for p in every])[index]
        return jax.tree.map(lambda a: a[index], self._stacked)

    def _tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        frame = ambient.current()
        # In a replica the value is the replica's own; see `_register_as_pytree`.
        if frame.mode == ambient.REPLICA and frame.port is not None:
            return (self.own(),), None
        if self._stacked is not None:
            # The form and the counts are static: JAX traces each form by itself.
            return (self._stacked,), ("stacked", self._count)
        if self._local is not None:
            return (self._local,), ("local", self._count)
        return self.values, ("parts", self._count, self.first)

    @classmethod
    def _tree_unflatten(
        cls, aux: tuple[Any, ...] | None, children: Sequence[Any]
    ) -> Any:
        # Taken apart in a replica: what comes back is the replica's plain value.
        if aux is None:
            return children[0]
        form, count, *first = aux
        if form == "stacked":
            return cls.from_stacked(children[0], count)
        if form == "local":
            return cls.from_local(children[0], count)
        self = cls(children)
        self._count, self._first = count, first[0]
        return self

    def __jax_array__(self) -> jax.Array:
        own: jax.Array = self.own()
        return own

    def __repr__(self) -> str:
        if self._local is not None:
            return f"PerReplica:{{own: {describe(self._local)}}}"
        return render("PerReplica", self.values, describe)

    def __str__(self) -> str:
        if self._local is not None:
            return repr(self)
        shown = describe_short
        return render("PerReplica", self.values, shown)


class Mirrored(ArrayOperators, DistributedValues):
    """A value that is the same on every replica; it can be used like an array.

    `StrategyExtended.reduce_to` and assignments across replicas return this type.

    Args:
        values: one per replica of this process, all equal.
        topology: the replicas; None for one replica per value.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     x = unisono.Variable(1.0).assign(3.0)
    >>> isinstance(x, Mirrored), [float(v) for v in x.values]
    (True, [3.0, 3.0])
    >>> float(x + 1), x.numpy().tolist(), x.shape
    (4.0, 3.0, TensorShape([]))
    """

    def __init__(self, values: Sequence[Any], topology: Topology | None = None) -> None:
        self._parts: tuple[Any, ...] | None = tuple(values)
        self._count, self._first = _extent(self._parts, topology)
        self._whole: Any = None

    @classmethod
    def of(cls, whole: object, count: int) -> Mirrored:
        """Returns a mirrored value that is stored as one array on all replicas.

        Args:
            whole: a replicated array, or a pytree of them.
            count: how many replicas there are, on all workers.
        """
        self = cls(())
        self._parts, self._whole, self._count = None, whole, count
        return self

    @property
    def count(self) -> int:
        """The number of replicas that hold the value, on all workers."""
        return self._count

    @property
    def whole(self) -> Any:
        """The value as one array: replicated over the devices, or traced."""
        return self.values[0] if self._whole is None else self._whole

    @property
    def values(self) -> tuple[Any, ...]:
        """The copies of this worker's replicas, in replica order."""
        if self._parts is None:
            if jax_tapes.has_tracer(self._whole):
                return tuple(collectives.hand_out(self._whole, [None] * self._count))
            with jax.ensure_compile_time_eval():
                found = _split_copies(self._whole, self._count)
                self._first, self._parts = found
        return self._parts

    @property
    def first(self) -> int:
        """The index of the replica of the first of `values`."""
        return self._first if self.values else 0

    def __jax_array__(self) -> jax.Array:
        frame = ambient.current()
        if frame.mode == ambient.REPLICA and isinstance(frame.copy, int):
            here = frame.copy - self.first
        else:
            here = 0
        copy: jax.Array = self.values[here]
        return copy

    def __getitem__(self, key: Any) -> jax.Array:
        return take(self.__jax_array__(), key, "the mirrored value")

    def numpy(self) -> np.ndarray:
        """Returns the value as a new NumPy array, or a NumPy number for a scalar."""
        return unpack_scalar(np.array(self.values[0]))

    def _tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        frame = ambient.current()
        if frame.mode == ambient.REPLICA and frame.port is not None:
            return (self.__jax_array__(),), None
        return (self.whole,), self._count

    @classmethod
    def _tree_unflatten(cls, aux: int | None, children: Sequence[Any]) -> Any:
        return children[0] if aux is None else cls.of(children[0], aux)

    def __repr__(self) -> str:
        return render("Mirrored", self.values, describe)

    def __str__(self) -> str:
        return render("Mirrored", self.values, describe_short)

    @property
    def shape(self) -> TensorShape:
        """The shape of the value."""
        return TensorShape(jnp.shape(self.values[0]))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of the value."""
        return jnp.result_type(self.values[0])


def _extent(parts: Sequence[Any], topology: Topology | None) -> tuple[int, int]:
    """Returns the number of replicas on all workers, and the first one given here."""
    # As many values as this worker has replicas are its own, among those of others.
    if topology is None or not topology.is_spread or len(parts) != topology.copies:
        return len(parts), 0
    return topology.replicas, topology.first


def _register_as_pytree(cls: Any) -> None:
    jax.tree_util.register_pytree_node(cls, cls._tree_flatten, cls._tree_unflatten)


# `jax.numpy` is compiled, so it takes its arguments apart before it asks them for
# their array: in a replica the only child of a distributed value is the own part.
_register_as_pytree(PerReplica)
_register_as_pytree(Mirrored)


def check_count(x: PerReplica | Mirrored, replicas: int) -> None:
    """Raises `IndexError` if a value was made for another number of replicas."""
    if x.count != replicas:
        raise IndexError(
            f"{type(x).__name__} has {x.count} values but the strategy has {replicas} "
            "replicas; pass one value per replica, made by this strategy, or pass a "
            "plain value to share it."
        )


def select(x: PerReplica | Mirrored, replica: int, replicas: int) -> Any:
    """Returns the value of one replica, which must be in this process.

    Raises:
        IndexError: the value was made for another number of replicas.
    """
    check_count(x, replicas)
    return x.values[replica - x.first]


def unwrap(tree: object, replica: int, replicas: int) -> Any:
    """Returns `tree` with one replica's values; variables stay as they are."""

    def leaf(x: object) -> object:
        if isinstance(x, (PerReplica, Mirrored)):
            return select(x, replica, replicas)
        return x

    return nest.map_leaves(leaf, tree, StandsForArray)


def container_of(x: object) -> StandsForArray | None:
    """Returns the distributed variable that `x` is a component of, or None."""
    find = getattr(x, "_distributed_container", None)
    return find() if find is not None else None


def regroup(
    results: Sequence[Any],
    wrap: Callable[[Sequence[Any]], Any] = PerReplica,
    always_wrap: bool = False,
) -> Any:
    """Merges one result per replica into one, leaf by leaf, by TensorFlow's rules.

    One object that all replicas returned stays that object, the components of a
    variable become that variable, and different objects are wrapped.

    Args:
        results: one nested structure per replica.
        wrap: makes one value of a list with one per replica.
        always_wrap: whether to wrap one object, too.

    Raises:
        AssertionError: the structures differ.

    >>> shared = object()
    >>> merged = regroup([{"x": 1, "y": shared}, {"x": 2, "y": shared}])
    >>> merged["x"].values, merged["y"] is shared
    ((1, 2), True)
    """
    # The structure of replica 0 decides, and objects are compared by identity, as in
    # TensorFlow.
    first = results[0]
    # The question of `nest.is_nested`, without a call: eager steps come here often.
    if isinstance(first, (list, tuple, Mapping)) and type(first) is not TensorShape:
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


_T = TypeVar("_T")


def _split_copies(whole: _T, count: int) -> tuple[int, tuple[_T, ...]]:
    """Returns the first replica of this process, and the copies of its replicas."""
    first, here = 0, count

    def split(x: Any) -> list[Any]:
        nonlocal first, here
        if isinstance(x, jax.Array) and len(x.sharding.device_set) >= count > 1:
            # The library puts arrays on several devices by a `NamedSharding` only.
            mesh = x.sharding.mesh  # type: ignore[attr-defined]
            if not x.is_fully_replicated:
                x = jax.device_put(x, NamedSharding(mesh, PartitionSpec()))
            by_device = {s.device: s.data for s in x.addressable_shards}
            # The mesh has a row for each replica; its first device has the copy.
            order = list(mesh.devices.reshape(count, -1)[:, 0])
            found = [i for i, d in enumerate(order) if d in by_device]
            first, here = found[0], len(found)
            return [collectives.release(by_device[order[i]]) for i in found]
        # On one device, or no array: every replica has the same object.
        return [x] * count

    leaves, treedef = _flatten(whole)
    columns = [split(x) for x in leaves]
    every = (treedef.unflatten([c[i] for c in columns]) for i in range(here))
    return first, tuple(every)


def _unstack(stacked: _T, count: int) -> tuple[_T, ...]:
    """Returns the rows of this process, each on its replica's device."""

    def split(x: jax.Array) -> list[jax.Array]:
        if isinstance(x, jax.core.Tracer) or len(x.sharding.device_set) == 1:
            return [x[i] for i in range(count)]
        if x.size == 0:
            return _split_empty(x, count)
        # A row lies on all logical devices of its replica; one shard of it is enough.
        own = [s for s in x.addressable_shards if s.replica_id == 0]
        found = sorted(own, key=lambda s: s.index[0].start or 0)
        pieces = [s.data.reshape(s.data.shape[1:]) for s in found]
        return [collectives.release(p) for p in pieces]

    leaves, treedef = _flatten(stacked)
    columns = [split(x) for x in leaves]
    here = min(map(len, columns), default=count)
    return tuple(treedef.unflatten([c[i] for c in columns]) for i in range(here))


def _split_empty(x: jax.Array, count: int) -> list[jax.Array]:
    """Returns the rows of this process of an array without elements.

    XLA does not split such an array: each device may have all rows.
    """
    pieces = [shard.data for shard in x.addressable_shards]
    logical = len(x.sharding.device_set) // count
    return [collectives.release(p[0]) for p in pieces[::logical]]


def _stack(parts: Sequence[_T], topology: Topology) -> _T | None:
    """Returns the parts as arrays with a row per replica; None if they are uneven."""
    flat = [_flatten(p) for p in parts]
    treedef = flat[0][1]
    kinds = None
    if all(f[1] == treedef for f in flat):
        columns = list(zip(*(f[0] for f in flat), strict=True))
        kinds = _kinds(columns)
    if topology.is_spread and not jax_tapes.has_tracer(parts):
        # A worker with uneven values asks too: the others wait for its answer.
        kinds = collectives.common_kinds(treedef, kinds, topology)
    if kinds is None:
        return None
    stacked = [_stack_column(column, topology) for column in columns]
    made: _T = treedef.unflatten(stacked)
    return made


def _kinds(columns: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Returns the shape and type of each column; None if a column has several."""
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


def _stack_column(column: Sequence[ArrayLike], topology: Topology) -> jax.Array:
    if jax_tapes.has_tracer(column):
        return jnp.stack([jnp.asarray(x) for x in column])
    if topology.is_one_device:
        only = column[0]
        row = only[None] if isinstance(only, jax.Array) else _numpy_row(only)
        placed: jax.Array = jax.device_put(row, topology.stacked_sharding)
        return placed
    rows = [
        x.reshape((1, *x.shape)) if isinstance(x, jax.Array) else _numpy_row(x)
        for x in column
    ]
    return topology.stack(rows)


def _numpy_row(x: ArrayLike) -> np.ndarray:
    """Returns a copy of `x` with a leading axis, in the type that JAX would use."""
    wanted = jax.dtypes.canonicalize_dtype(jnp.result_type(x))
    given = np.asarray(x)
    return np.array(wide_numbers.check(given, "a per-replica value"), wanted)[None]


def _flatten(tree: object) -> tuple[list[Any], Any]:
    # Typed by hand: mypy does not know what jaxlib's structures can do.
    return jax.tree.flatten(tree)


def describe(x: Any) -> str:
    """Returns `x` as TensorFlow's `repr` of a distributed value shows it."""
    if jax_tapes.is_traced(x):
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, traced>"
    if isinstance(x, jax.Array) and collectives.is_key(x):
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, {x}>"
    if isinstance(x, jax.Array):
        shown = x.item() if x.ndim == 0 else np.asarray(x)
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, numpy={shown!r}>"
    return repr(x)


def describe_short(x: object) -> str:
    """Returns `x` as TensorFlow's `str` of a distributed value shows it."""
    if (
        isinstance(x, jax.Array)
        and not jax_tapes.is_traced(x)
        and not collectives.is_key(x)
    ):
        return f"tf.Tensor({np.asarray(x)}, shape={x.shape}, dtype={x.dtype})"
    if isinstance(x, str):
        return printable.escape(x)
    return str(x) if not jax_tapes.is_traced(x) else describe(x)


def render(name: str, parts: Sequence[Any], one: Callable[[Any], str]) -> str:
    """Returns a text with a line for each replica, as TensorFlow shows such values.

    >>> print(render("PerReplica", ["a", "b"], repr))
    PerReplica:{
      0: 'a',
      1: 'b'
    }
    """
    lines = ",\n".join(f"  {i}: {one(p)}" for i, p in enumerate(parts))
    return f"{name}:{{\n{lines}\n}}"
