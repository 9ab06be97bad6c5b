"""One `Variable`: synchronization, aggregation and placement are fields of it."""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, final, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation import ambient, options
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.foundation.public_names import publish
from unisono._src.state import assignment, creation, frames, scatter
from unisono._src.state.frames import Policy
from unisono._src.values import collectives, distributed
from unisono._src.values.array_operators import ArrayOperators
from unisono._src.values.indexed_slices import IndexedSlices


@final
class _Factory(type):
    """Calling `Variable` makes a variable of the kind that the scope asks for."""

    if not TYPE_CHECKING:  # A type checker reads the signature of `Variable.__init__`.

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make_variable(*args, **kwargs)


class Variable(ArrayOperators, metaclass=_Factory):
    """State that a program reads and assigns; placed by the strategy in scope.

    Outside any scope it is one array. Under `MirroredStrategy` it is a copy per
    replica, kept equal (`synchronization` AUTO or ON_WRITE), or a value per replica
    that is aggregated when read across replicas (ON_READ).

    Args:
        initial_value: array-like, or a function without arguments that gives one.
        trainable: whether optimizers should update it; default True, False for
            ON_READ variables.
        name: for messages and checkpoints; default "Variable".
        dtype: element type; default that of `initial_value`.
        shape: checked against the initial value if given.
        constraint: a function applied by optimizers after an update.
        synchronization: when copies are brought together.
        aggregation: how values that replicas assign become one.

    >>> v = Variable([1.0, 2.0], name="v")
    >>> v.assign_add([1.0, 1.0])
    Array([2., 3.], dtype=float32)
    >>> v
    <tf.Variable 'v:0' shape=(2,) dtype=float32, numpy=array([2., 3.], dtype=float32)>
    """

    _cell: frames.Cell
    _trainable: bool
    _synchronization: VariableSynchronization
    _aggregation: VariableAggregation
    _strategy: Any
    _constraint: Callable[[Any], Any] | None
    _parts: tuple[Variable, ...] | None
    _container: weakref.ref[Variable] | None
    _index: int | None

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        shape: Sequence[int] | None = None,
        constraint: Callable[[Any], Any] | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
    ) -> None:
        # For readers and type checkers: the metaclass makes variables, because which
        # class one has depends on the scope it is made in.
        raise TypeError("Call Variable(...) to make a variable.")

    @classmethod
    def _assemble(
        cls,
        cell: frames.Cell,
        *,
        trainable: bool,
        synchronization: VariableSynchronization,
        aggregation: VariableAggregation,
        strategy: Any = None,
        constraint: Callable[[Any], Any] | None = None,
    ) -> Self:
        self = object.__new__(cls)
        self._cell = cell
        self._trainable = trainable
        self._synchronization = synchronization
        self._aggregation = aggregation
        self._strategy = strategy
        self._constraint = constraint
        self._parts = self._container = self._index = None
        return self

    # What it is.

    @property
    def name(self) -> str:
        """Name with TensorFlow's ``:0``."""
        suffix = f"/replica_{self._index}" if self._index else ""
        return f"{self._cell.name}{suffix}:0"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self._cell.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._cell.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self._cell.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        dtype: np.dtype[Any] = self._cell.dtype
        return dtype

    @property
    def trainable(self) -> bool:
        """Whether optimizers should update it."""
        return self._trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        """When the copies are brought together."""
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        """How values that replicas assign, or hold, become one."""
        return self._aggregation

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        """Applied by optimizers after an update."""
        return self._constraint

    @property
    def distribute_strategy(self) -> Any:
        """The strategy in whose scope it was made, or None."""
        return self._strategy

    @property
    def device(self) -> str:
        """Where the value, or its first copy, lives."""
        cell = self._cell
        if cell.topology is None:
            return "/job:localhost/replica:0/task:0/device:CPU:0"
        if cell.policy in (Policy.MIRRORED, Policy.ON_READ):
            topology = cell.topology
            return str(
                topology.names[topology.first if self._index is None else self._index]
            )
        return str(self._strategy.extended.parameter_devices[0])

    @property
    def values(self) -> tuple[Variable, ...]:
        """The component variables, one per replica of this worker."""
        if self._index is not None or not self._is_distributed:
            raise AttributeError(
                f"{self.name} is one variable, it has no components; only variables "
                "made in the scope of a mirrored strategy do."
            )
        topology = self._cell.topology
        if topology.is_spread and frames.frame().is_compiled:
            return tuple(self._component(i) for i in range(topology.replicas))
        if self._parts is None:
            self._parts = tuple(self._component(i) for i in topology.local)
        return self._parts

    @property
    def handle(self) -> object:
        """An opaque identity of one copy."""
        if not self._is_distributed or self._index is not None:
            return self if self._is_distributed else self._cell
        frame = ambient.current()
        if frame.strategy is self._strategy and frame.mode == ambient.CROSS:
            raise ValueError(
                "DistributedVariable.handle is not available outside the replica "
                "context or a 'tf.distribute.Strategy.update()' call."
            )
        return self.values[self._cell.topology.position(frame.copy)].handle

    @property
    def _is_distributed(self) -> bool:
        return self._cell.policy in (Policy.MIRRORED, Policy.ON_READ)

    def _component(self, index: int) -> Variable:
        part = ResourceVariable._assemble(
            self._cell,
            trainable=self._trainable,
            synchronization=self._synchronization,
            aggregation=self._aggregation,
            strategy=self._strategy,
        )
        part._container = weakref.ref(self)
        part._index = index
        return part

    def _distributed_container(self) -> Variable | None:
        return self._container() if self._container is not None else None

    # Reading.

    def value(self) -> jax.Array:
        """The value as the running context sees it: a copy or the aggregate."""
        return assignment.read(self)

    def read_value(self) -> jax.Array:
        """The same as `value`."""
        return assignment.read(self)

    def numpy(self) -> np.ndarray:
        """The value as a NumPy array of its own."""
        return assignment.read_on_host(self)

    def __jax_array__(self) -> jax.Array:
        return assignment.read(self)

    def __len__(self) -> int:
        raise TypeError(f"object of type '{type(self).__name__}' has no len()")

    def get(self) -> Variable:
        """The variable that `update` passes to its function."""
        if self._cell.policy is Policy.CENTRAL and self._index is None:
            if self._parts is None:
                self._parts = (self._component(0),)
            return self._parts[0]
        return self

    # Writing.

    @overload
    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Literal[True] = True,
    ) -> jax.Array | distributed.Mirrored: ...

    @overload
    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        *,
        read_value: Literal[False],
    ) -> None: ...

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Replace the value, by the rules of synchronization and aggregation."""
        return assignment.assign(self, assignment.REPLACE, value, read_value)

    @overload
    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Literal[True] = True,
    ) -> jax.Array | distributed.Mirrored: ...

    @overload
    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        *,
        read_value: Literal[False],
    ) -> None: ...

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Add to the value."""
        return assignment.assign(self, assignment.ADD, delta, read_value)

    @overload
    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Literal[True] = True,
    ) -> jax.Array | distributed.Mirrored: ...

    @overload
    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        *,
        read_value: Literal[False],
    ) -> None: ...

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtract from the value."""
        return assignment.assign(self, assignment.SUB, delta, read_value)

    def scatter_add(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Add rows at their indices."""
        return scatter.scatter(self, "add", sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Subtract rows at their indices."""
        return scatter.scatter(self, "sub", sparse_delta)

    def scatter_update(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Replace rows at their indices."""
        return scatter.scatter(self, "update", sparse_delta)

    def scatter_min(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Keep the smaller of each row and the given one."""
        return scatter.scatter(self, "min", sparse_delta)

    def scatter_max(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Keep the larger of each row and the given one."""
        return scatter.scatter(self, "max", sparse_delta)

    def scatter_mul(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Multiply rows at their indices."""
        return scatter.scatter(self, "mul", sparse_delta)

    def scatter_div(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Divide rows at their indices."""
        return scatter.scatter(self, "div", sparse_delta)

    # Python.

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        cell = self._cell
        placement = ambient.current().placement
        if self._strategy is not None:
            placement = self._strategy.extended._placement
        twin = frames.Cell(
            cell.policy, cell.shape, cell.dtype, placement, cell.name, cell.origin
        )
        twin.array, twin.is_suspect = cell.duplicate(), cell.is_suspect
        copied = type(self)._assemble(
            twin,
            trainable=self._trainable,
            synchronization=self._synchronization,
            aggregation=self._aggregation,
            strategy=self._strategy,
            constraint=self._constraint,
        )
        memo[id(self)] = copied
        return copied

    def __repr__(self) -> str:
        if self._index is None and self._is_distributed:
            return distributed.render(type(self).__name__, self.values, repr)
        found = frames.frame().copy(self._cell, self._index)
        head = f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype}"
        if isinstance(found, jax.core.Tracer):
            return f"{head}, traced>"
        if collectives.is_key(found):
            return f"{head}, {found}>"
        shown = found.item() if found.ndim == 0 else np.asarray(found)
        return f"{head}, numpy={shown!r}>"


@final
class ResourceVariable(Variable):
    """A variable that is one array, or one component of a distributed variable."""


@final
class MirroredVariable(Variable, distributed.DistributedValues):
    """A copy per replica, kept equal."""


@final
class SyncOnReadVariable(Variable, distributed.DistributedValues):
    """A value per replica, aggregated when read across replicas."""


@final
class AggregatingVariable(Variable):
    """One value on the parameter device of a `CentralStorageStrategy`."""


_KINDS = {
    Policy.PLAIN: ResourceVariable,
    Policy.MIRRORED: MirroredVariable,
    Policy.ON_READ: SyncOnReadVariable,
    Policy.CENTRAL: AggregatingVariable,
}

for _kind in _KINDS.values():
    # Inside a function that JAX transforms a variable is its value.
    jax.tree_util.register_pytree_node(
        _kind,
        lambda v: ((v.value(),), None),
        lambda _, children: children[0],
    )
del _kind


def make_variable(
    initial_value: Any = None,
    trainable: bool | None = None,
    *,
    name: str | None = None,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    constraint: Callable[[Any], Any] | None = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """Make a variable where the current scope places it; see `Variable`."""
    # Nothing but the arguments by name, in front of all other lines.
    arguments = dict(locals())
    port = ambient.current().port
    made: Variable
    if getattr(port, "made", None) is None:
        made = creation.with_creators(_create)(**arguments)
    else:
        made = creation.take_in_turn(
            port, lambda: creation.with_creators(_create)(**arguments), name
        )
    return made


Variable.__signature__ = inspect.signature(make_variable)  # type: ignore[attr-defined]


def _create(
    initial_value: Any,
    trainable: bool | None,
    name: str | None,
    dtype: Any,
    shape: Any,
    constraint: Callable[[Any], Any] | None,
    synchronization: VariableSynchronization,
    aggregation: VariableAggregation,
) -> Variable:
    synchronization = options.variable_synchronization(synchronization, name)
    aggregation = options.variable_aggregation(aggregation, name)
    placement = ambient.current().placement
    if placement is not None:
        creation.check_distributed(synchronization, name)
    policy = creation.policy(placement, synchronization)
    splits = placement if policy is Policy.MIRRORED else None
    value = creation.initial(initial_value, dtype, shape, name, splits)
    if policy in (Policy.MIRRORED, Policy.ON_READ):
        creation.check_mean(aggregation, value.dtype)
        if synchronization is VariableSynchronization.AUTO:
            synchronization = VariableSynchronization.ON_WRITE
    known = name or "Variable", creation.origin()
    cell = frames.Cell(policy, value.shape, value.dtype, placement, *known)
    frames.frame().create(cell, value)
    if trainable is None:
        trainable = synchronization is not VariableSynchronization.ON_READ
    return _KINDS[policy]._assemble(
        cell,
        trainable=trainable,
        synchronization=synchronization,
        aggregation=aggregation,
        strategy=ambient.current().strategy,
        constraint=constraint,
    )


def get_variable(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    initializer: Any = None,
    trainable: bool | None = None,
    partitioner: object = None,
    constraint: Callable[[Any], Any] | None = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """TensorFlow 1's way to make a variable.

    Args:
        name: its name.
        shape: its shape; not needed if `initializer` is an array.
        dtype: its element type; default float32.
        initializer: an array, or a function of shape and type; default Glorot's
            uniform distribution, seeded by the name.
        trainable: whether optimizers should update it.
        partitioner: ignored with a warning: strategies here keep variables whole.
        constraint: a function applied by optimizers after an update.
        synchronization: when copies are brought together.
        aggregation: how values that replicas assign become one.
    """
    if partitioner is not None:
        warnings.warn(
            "Partitioned variables are not supported under a strategy; the partitioner "
            f"of variable '{name}' is ignored.",
            stacklevel=2,
        )
    if initializer is None or callable(initializer):
        if shape is None:
            raise ValueError(
                f"Variable '{name}' needs a shape unless its initializer is an array."
            )
        wanted = tuple(shape), dtype or jnp.float32
        make = initializer or functools.partial(creation.glorot_uniform, name)
        initializer = make(*wanted)
    return Variable(
        initializer,
        trainable,
        name=name,
        dtype=dtype,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


publish("unisono", Variable)
publish("unisono.compat.v1", get_variable)
