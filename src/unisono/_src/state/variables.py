"""The class `Variable`, and how a scope makes variables of the kinds that it needs."""

from __future__ import annotations

import html
import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, final, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation import ambient, options, tables, tensor_shape
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.state import (
    assignment,
    creation,
    frames,
    positions,
    reading,
    storage,
    variable_identity,
)
from unisono._src.state.storage import Policy
from unisono._src.values import array_operators, collectives, distributed


@final
class _Factory(type):
    """Makes a call of `Variable` return a variable of the kind that the scope needs."""

    if not TYPE_CHECKING:  # A type checker reads the signature of `Variable.__init__`.

        def __call__(cls, *args: Any, **kwargs: Any) -> Variable:
            # Creators get all arguments by name.
            try:
                given = _SIGNATURE.bind(cls, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{cls.__name__}(): {error}.") from None
            given.apply_defaults()
            _, *named = given.arguments.items()
            return _make_variable(dict(named))

    def assemble(
        cls,
        cell: storage.Cell,
        *,
        trainable: bool,
        synchronization: VariableSynchronization,
        aggregation: VariableAggregation,
        strategy: Any = None,
        constraint: Callable[[Any], Any] | None = None,
        container: weakref.ref[Any] | None = None,
        index: int | None = None,
    ) -> Any:
        """Returns a variable of this class that has its value in `cell`.

        A component also has its distributed variable, `container`, and its replica,
        `index`.
        """
        # Not by calling the class, which is `__call__` above. Mypy does not know that
        # the instances of a metaclass are classes.
        self: Any = object.__new__(cls)  # type: ignore[arg-type]
        self.state_cell = cell
        self._trainable = trainable
        self._synchronization = synchronization
        cell.aggregation, cell.owner = aggregation, strategy
        self._constraint = constraint
        self._container = container
        self.replica_index = index
        self._parts = None
        variable_identity.note(self)
        return self


class Variable(positions.VariableParts, metaclass=_Factory):
    """State that a program reads and assigns; the strategy in scope places it.

    Outside any scope it is one array. Under `MirroredStrategy`, each replica has a
    copy, and all copies stay equal (`synchronization` AUTO or ON_WRITE). Or each
    replica has its own value, and reading in cross-replica context aggregates the
    values (ON_READ).

    Args:
        initial_value: array-like, or a function without arguments that returns one.
        trainable: whether optimizers should update it; the default is True, but False
            for ON_READ variables.
        name: a name for messages and checkpoints; the default is "Variable".
        dtype: the element type; the default is that of `initial_value`.
        shape: the shape that the initial value must have; None for any shape. Axes may
            have any length, as in TensorShape([None, 2]); the initial value decides.
        constraint: a function that optimizers apply after an update.
        synchronization: when the copies are combined.
        aggregation: how values that replicas assign are combined; None means NONE.
        validate_shape: accepted, no effect; in TensorFlow, this and the following
            arguments are for graphs.
        caching_device: accepted, no effect.
        variable_def: accepted, no effect.
        import_scope: accepted, no effect.
        experimental_enable_variable_lifting: accepted, no effect.

    Raises:
        ValueError: there is no initial value, its shape does not fit `shape`, or the
            strategy does not support such a variable.

    >>> v = Variable([1.0, 2.0], name="v")
    >>> v.assign_add([1.0, 1.0])
    Array([2., 3.], dtype=float32)
    >>> v
    <tf.Variable 'v:0' shape=(2,) dtype=float32, numpy=array([2., 3.], dtype=float32)>
    >>> v.name, v.shape, v.ndim, v.size, v.dtype.name, v.trainable
    ('v:0', TensorShape([2]), 1, 2, 'float32', True)

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     w = Variable(1.0, aggregation=VariableAggregation.MEAN)
    >>> w.distribute_strategy is strategy, w.synchronization.name, w.aggregation.name
    (True, 'ON_WRITE', 'MEAN')
    """

    state_cell: storage.Cell
    _trainable: bool
    _synchronization: VariableSynchronization
    _constraint: Callable[[Any], Any] | None
    _parts: tuple[Variable, ...] | None
    _container: weakref.ref[Variable] | None
    replica_index: int | None

    def __init__(
        self,
        initial_value: object = None,
        trainable: bool | None = None,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        shape: tensor_shape.ShapeLike = None,
        constraint: Callable[[Any], Any] | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation | None = VariableAggregation.NONE,
        validate_shape: bool = True,
        caching_device: str | None = None,
        variable_def: None = None,
        import_scope: str | None = None,
        experimental_enable_variable_lifting: bool = True,
    ) -> None:
        # Never called; for readers and type checkers. The metaclass makes variables,
        # because the class of a variable depends on the scope.
        raise TypeError("Call Variable(...) to make a variable.")

    # Properties.

    @property
    def name(self) -> str:
        """The name, ending in ``:0``; that of a component includes its replica."""
        suffix = f"/replica_{self.replica_index}" if self.replica_index else ""
        return f"{self.state_cell.name}{suffix}:0"

    @property
    def shape(self) -> tensor_shape.TensorShape:
        """The shape of the value: a tuple that also has the methods of TensorFlow.

        >>> v = Variable([[1.0, 2.0]])
        >>> v.shape, v.shape.as_list(), v.shape == (1, 2), jnp.ones(v.shape).shape
        (TensorShape([1, 2]), [1, 2], True, (1, 2))
        """
        return tensor_shape.TensorShape(self.state_cell.shape)

    def get_shape(self) -> tensor_shape.TensorShape:
        """Returns the same as `shape`.

        >>> Variable([1.0, 2.0]).get_shape().as_list()
        [2]
        """
        return tensor_shape.TensorShape(self.state_cell.shape)

    def set_shape(self, shape: tensor_shape.ShapeLike) -> None:
        """Raises `ValueError` unless the shape of the variable fits `shape`.

        >>> Variable([1.0, 2.0]).set_shape([None])
        """
        self.shape.merge_with(shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.state_cell.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.state_cell.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self.state_cell.dtype

    @property
    def initial_value(self) -> jax.Array:
        """The array with which the variable began; it is not kept.

        Raises:
            RuntimeError: always, as in TensorFlow when it is not building a graph.
        """
        raise RuntimeError(
            "This property is not supported when eager execution is enabled: the first "
            f"value of the variable '{self.state_cell.name}' is not kept. Keep "
            "variable.numpy() yourself before the first assignment."
        )

    @property
    def initializer(self) -> None:
        """None, as in TensorFlow outside graphs: the variable already has a value."""
        return None

    @property
    def trainable(self) -> bool:
        """Whether optimizers should update it."""
        return self._trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        """When the copies are combined."""
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        """How the values that replicas assign or hold are combined."""
        found: VariableAggregation = self.state_cell.aggregation
        return found

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        """The function that optimizers apply after an update, or None.

        >>> v = Variable(1.0, constraint=lambda x: jnp.clip(x, 0.0, 0.5))
        >>> float(v.constraint(v.value()))
        0.5
        """
        return self._constraint

    @property
    def distribute_strategy(self) -> Any:
        """The strategy in whose scope the variable was created, or None."""
        return self.state_cell.owner

    @property
    def device(self) -> str:
        """The name of the device with the value or its first copy, as in TensorFlow.

        >>> import unisono
        >>> with unisono.distribute.MirroredStrategy(["CPU:1", "CPU:0"]).scope():
        ...     v = Variable(1.0)
        >>> [v.device[-5:], *(component.device[-5:] for component in v.values)]
        ['CPU:1', 'CPU:1', 'CPU:0']
        """
        cell = self.state_cell
        if cell.topology is None:
            return "/job:localhost/replica:0/task:0/device:CPU:0"
        if cell.home is not None:
            return f"/job:ps/replica:0/task:{cell.home.servers[0]}/device:CPU:0"
        if cell.policy in (Policy.MIRRORED, Policy.ON_READ):
            topology = cell.topology
            return str(
                topology.names[
                    topology.first if self.replica_index is None else self.replica_index
                ]
            )
        return str(self.state_cell.owner.extended.parameter_devices[0])

    @property
    def values(self) -> tuple[Variable, ...]:
        """The component variables, one per replica of this worker.

        Raises:
            AttributeError: the variable is one array and has no components.

        >>> import unisono
        >>> with unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        ...     v = Variable(2.0, name="v")
        >>> [(component.name, float(component.value())) for component in v.values]
        [('v:0', 2.0), ('v/replica_1:0', 2.0)]
        """
        if self.replica_index is not None or not self._is_distributed:
            raise AttributeError(
                f"{self.name} is one variable, it has no components; only variables "
                "made in the scope of a mirrored strategy do."
            )
        topology = self.state_cell.topology
        # A program is traced for the replicas of all workers.
        if topology.is_spread and frames.frame().is_compiled:
            return tuple(self._component(i) for i in range(topology.replicas))
        if self._parts is None:
            # Kept, so that a component is the same object each time: merging goes by
            # identity.
            self._parts = tuple(self._component(i) for i in topology.local)
        return self._parts

    @property
    def handle(self) -> object:
        """An object that identifies one copy.

        Raises:
            ValueError: the variable has several copies, and the code is outside replica
                context and `update`.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     v = Variable(1.0)
        >>> found = strategy.run(lambda: v.handle)
        >>> [x is y.handle for x, y in zip(found.values, v.values, strict=True)]
        [True, True]
        """
        if not self._is_distributed or self.replica_index is not None:
            return self if self._is_distributed else self.state_cell
        frame = ambient.current()
        if frame.strategy is self.state_cell.owner and frame.mode == ambient.CROSS:
            raise ValueError(
                "DistributedVariable.handle is not available outside the replica "
                "context or a `tf.distribute.Strategy.update()` call."
            )
        return self.values[self.state_cell.topology.position(frame.copy)].handle

    @property
    def _is_distributed(self) -> bool:
        """Whether each replica has a copy, or a value of its own."""
        return self.state_cell.policy in (Policy.MIRRORED, Policy.ON_READ)

    def _component(self, index: int) -> Variable:
        """Returns the variable that is one replica's part of this one."""
        part: Variable = ResourceVariable.assemble(
            self.state_cell,
            trainable=self._trainable,
            synchronization=self._synchronization,
            aggregation=self.state_cell.aggregation,
            strategy=self.state_cell.owner,
            # Weak: a cycle would keep the memory until the garbage collector runs.
            container=weakref.ref(self),
            index=index,
        )
        return part

    def _distributed_container(self) -> Variable | None:
        """Returns the distributed variable that this component belongs to."""
        return self._container() if self._container is not None else None

    # Reading.

    def value(self) -> jax.Array:
        """Returns the value, as the current context sees it.

        A replica sees its own copy. In cross-replica context, the value of a
        sync-on-read variable is the aggregate of the values of all replicas.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> on_read, total = VariableSynchronization.ON_READ, VariableAggregation.SUM
        >>> with strategy.scope():
        ...     seen = Variable(0, synchronization=on_read, aggregation=total)
        >>> inside = strategy.run(lambda: seen.assign_add(3))
        >>> [int(x) for x in inside.values], int(seen.value())
        ([3, 3], 6)
        """
        return reading.read(self)

    def read_value(self) -> jax.Array:
        """Returns the same as `value`.

        >>> Variable([1.0, 2.0]).read_value().tolist()
        [1.0, 2.0]
        """
        return reading.read(self)

    def numpy(self) -> np.ndarray:
        """Returns the value as a new NumPy array, or as a NumPy number for a scalar.

        >>> v = Variable([1.0, 2.0])
        >>> v.numpy()[:] = 0.0
        >>> v.numpy().tolist()
        [1.0, 2.0]
        >>> Variable(3).numpy()
        np.int32(3)
        """
        return array_operators.unpack_scalar(reading.read_on_host(self))

    @property
    def local_part(self) -> jax.Array:
        """The part of the value that the first replica of this process stores.

        With ``state="sharded"`` each replica stores a part of a large variable. You can
        read it without the other workers. `Strategy.experimental_local_results` returns
        the parts of all replicas of this process. If the variable is not split, it is
        the whole value.

        Raises:
            RuntimeError: it is read in a `unisono.function`.

        >>> import unisono
        >>> devices = ["CPU:0", "CPU:1"]
        >>> options = {"state": "sharded", "shard_above": 4}
        >>> with unisono.distribute.MirroredStrategy(devices, **options).scope():
        ...     v = Variable([1.0, 2.0, 3.0, 4.0])
        >>> v.local_part.tolist(), v.numpy().tolist()
        ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0])
        """
        parts = reading.read_own_parts(self)
        if self.replica_index is None or len(parts) == 1:
            return parts[0]
        return parts[self.state_cell.topology.position(self.replica_index)]

    def __jax_array__(self) -> jax.Array:
        return reading.read(self)

    def __len__(self) -> int:
        raise TypeError(f"object of type '{type(self).__name__}' has no len()")

    def is_initialized(self, name: str | None = None) -> jax.Array:
        """Returns whether the variable has a value, as a scalar.

        It has no value if the call that should create or update it has failed.

        Args:
            name: accepted, no effect.

        >>> bool(Variable(1.0).is_initialized())
        True
        """
        return jnp.asarray(frames.has_value(self.state_cell))

    def ref(self) -> variable_identity.Reference[Variable]:
        """Returns a reference that can be compared and hashed; see its `deref`.

        >>> v = Variable(1.0)
        >>> v.ref() == v.ref(), v.ref() in {v.ref()}, v.ref().deref() is v
        (True, True, True)
        """
        return variable_identity.Reference(self)

    def get(self) -> Variable:
        """Returns the variable that `StrategyExtended.update` passes to its function.

        For a variable of `CentralStorageStrategy` this is its only component, for all
        others the variable itself.

        >>> v = Variable(1.0)
        >>> v.get() is v
        True
        """
        if self.state_cell.policy is Policy.CENTRAL and self.replica_index is None:
            if self._parts is None:
                self._parts = (self._component(0),)
            return self._parts[0]
        return self

    # Writing.

    @overload
    def assign(
        self,
        value: object,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Literal[True] = True,
    ) -> jax.Array | distributed.Mirrored: ...

    @overload
    def assign(
        self,
        value: object,
        use_locking: bool = False,
        name: str | None = None,
        *,
        read_value: Literal[False],
    ) -> None: ...

    def assign(
        self,
        value: object,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> jax.Array | distributed.Mirrored | None:
        """Replaces the value.

        In replica context, a mirrored variable gets the aggregate of the values that
        the replicas assign. A sync-on-read variable gets the value of each replica.

        Args:
            value: array-like, of the variable's shape.
            use_locking: accepted, no effect.
            name: accepted, no effect.
            read_value: whether to return the new value.

        Returns:
            The new value as the current context sees it; None if `read_value` is False.

        Raises:
            TypeError: the type of a Python number, also in a list, does not fit the
                variable, such as a float for an integer variable.
            ValueError: the type of an array or the shape does not fit, the copies would
                become different, or a replica assigns a mirrored variable that has no
                aggregation.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     v = Variable(0.0, aggregation=VariableAggregation.MEAN)
        >>> x = unisono.distribute.PerReplica([1.0, 3.0])
        >>> new = strategy.run(v.assign, args=(x,))
        >>> v.numpy().item()
        2.0
        """
        return assignment.assign(self, assignment.REPLACE, value, read_value)

    @overload
    def assign_add(
        self,
        delta: object,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Literal[True] = True,
    ) -> jax.Array | distributed.Mirrored: ...

    @overload
    def assign_add(
        self,
        delta: object,
        use_locking: bool = False,
        name: str | None = None,
        *,
        read_value: Literal[False],
    ) -> None: ...

    def assign_add(
        self,
        delta: object,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> jax.Array | distributed.Mirrored | None:
        """Adds to the value.

        Arguments, result and rules are the same as for `assign`.

        Raises:
            ValueError: as for `assign`, or a sync-on-read variable is changed in
                cross-replica context.

        >>> Variable([1.0, 2.0]).assign_add([0.5, 1.0]).tolist()
        [1.5, 3.0]
        """
        return assignment.assign(self, assignment.ADD, delta, read_value)

    @overload
    def assign_sub(
        self,
        delta: object,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Literal[True] = True,
    ) -> jax.Array | distributed.Mirrored: ...

    @overload
    def assign_sub(
        self,
        delta: object,
        use_locking: bool = False,
        name: str | None = None,
        *,
        read_value: Literal[False],
    ) -> None: ...

    def assign_sub(
        self,
        delta: object,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> jax.Array | distributed.Mirrored | None:
        """Subtracts from the value.

        Arguments, result and errors are the same as for `assign_add`.

        >>> Variable([1.0, 2.0]).assign_sub([0.5, 1.0]).tolist()
        [0.5, 1.0]
        """
        return assignment.assign(self, assignment.SUB, delta, read_value)

    # Python.

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        copied: Variable = type(self).assemble(
            self.state_cell.make_twin(),
            trainable=self._trainable,
            synchronization=self._synchronization,
            aggregation=self.state_cell.aggregation,
            strategy=self.state_cell.owner,
            constraint=self._constraint,
        )
        memo[id(self)] = copied
        return copied

    def __hash__(self) -> int:
        # `==` compares elements, so that a variable would be no key of its own.
        raise TypeError(
            "Variable is unhashable. Instead, use variable.ref() as the key. "
            f"(Variable: {self!r})"
        )

    def __repr__(self) -> str:
        if self.replica_index is None and self._is_distributed:
            return distributed.render(type(self).__name__, self.values, repr)
        head = f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype}"
        if reading.has_part(self):
            shown = np.asarray(self.local_part)
            return f"{head}, {reading.name_part(self)}, numpy={shown!r}>"
        found = frames.frame().copy(self.state_cell, self.replica_index)
        if isinstance(found, jax.core.Tracer):
            return f"{head}, traced>"
        if collectives.is_key(found):
            return f"{head}, {found}>"
        shown = found.item() if found.ndim == 0 else np.asarray(found)
        return f"{head}, numpy={shown!r}>"

    def _repr_html_(self) -> str:
        cell = self.state_cell
        kept = "sharded" if cell.split is not None else cell.policy.value
        kept = kept if cell.home is None else "on servers"
        row = (self.name, str(cell.shape), str(cell.dtype), kept)
        table = tables.TextTable("", ("variable", "shape", "type", "placement"), [row])
        return f"{tables.render_html(table)}<pre>{html.escape(repr(self))}</pre>"


@final
class ResourceVariable(Variable):
    """A variable that is one array, or one component of a distributed variable."""

    # As in TensorFlow: the others, such as `//=`, make an array.
    __iadd__ = array_operators.refuse_in_place("variable", "+", "assign_add(value)")
    __isub__ = array_operators.refuse_in_place("variable", "-", "assign_sub(value)")
    __imul__ = array_operators.refuse_in_place("var", "*", "assign(var * value)")
    __itruediv__ = array_operators.refuse_in_place("var", "/", "assign(var / value)")
    __ipow__ = array_operators.refuse_in_place("var", "**", "assign(var ** value)")


@final
class MirroredVariable(Variable, distributed.DistributedValues):
    """A variable with a copy on each replica, all equal."""


@final
class SyncOnReadVariable(Variable, distributed.DistributedValues):
    """A variable with a value per replica, aggregated when read across replicas."""


@final
class AggregatingVariable(Variable):
    """A variable on the parameter device of a `CentralStorageStrategy`."""


def forget_components(variable: Variable) -> None:
    """Has a variable make its components anew, for its cell has moved."""
    variable._parts = None  # noqa: SLF001, the module of the class


_SIGNATURE = inspect.signature(Variable.__init__)
Variable.__signature__ = _SIGNATURE.replace(  # type: ignore[attr-defined]
    parameters=[*_SIGNATURE.parameters.values()][1:], return_annotation="Variable"
)

_KINDS = {
    Policy.PLAIN: ResourceVariable,
    Policy.MIRRORED: MirroredVariable,
    Policy.ON_READ: SyncOnReadVariable,
    Policy.CENTRAL: AggregatingVariable,
}

for _kind in _KINDS.values():
    # JAX sees a variable as its value: a function that JAX transforms gets an array.
    jax.tree_util.register_pytree_node(
        _kind,
        lambda v: ((v.value(),), None),
        lambda _, children: children[0],
    )
del _kind


def _make_variable(arguments: dict[str, Any]) -> Variable:
    """Makes a variable where the current scope places it; see `Variable`."""
    port = ambient.current().port
    made: Variable
    if port is None or port.is_alone or port.is_spmd:
        made = creation.wrap_in_creators(_create)(**arguments)
    else:
        # Only replicas that take turns have a list of the variables they have made.
        made = creation.take_in_turn(port, _create, arguments)
    return made


def _create(
    initial_value: object,
    trainable: bool | None,
    name: str | None,
    dtype: DTypeLike | None,
    shape: tensor_shape.ShapeLike,
    constraint: Callable[[Any], Any] | None,
    synchronization: VariableSynchronization,
    aggregation: VariableAggregation | None,
    **of_graphs: object,
) -> Variable:
    """Makes one variable in the current scope, without asking its creators."""
    creation.check_arguments_of_graphs(of_graphs)
    synchronization = options.variable_synchronization(synchronization, name)
    aggregation = options.variable_aggregation(aggregation, name)
    scope = ambient.current()
    placement = scope.placement
    if placement is not None:
        creation.check_distributed(synchronization, name)
    # In this order: where it goes, its first value, its cell, the value in the cell,
    # and last the variable.
    policy = creation.policy(placement, synchronization)
    splits = placement if policy is Policy.MIRRORED else None
    value = creation.initial_array(initial_value, dtype, shape, name, splits)
    if policy in (Policy.MIRRORED, Policy.ON_READ):
        creation.check_mean(aggregation, value.dtype)
        if synchronization is VariableSynchronization.AUTO:
            synchronization = VariableSynchronization.ON_WRITE
    known = f"{scope.names}{name or 'Variable'}", creation.find_origin()
    cell = storage.Cell(policy, value.shape, value.dtype, placement, *known)
    frames.frame().create(cell, frames.strip_gradient(value))
    if trainable is None:
        trainable = synchronization is not VariableSynchronization.ON_READ
    # A variable on a server is a plain one to its users, as in TensorFlow.
    made: Variable = _KINDS.get(policy, ResourceVariable).assemble(
        cell,
        trainable=trainable,
        synchronization=synchronization,
        aggregation=aggregation,
        strategy=scope.strategy,
        constraint=constraint,
    )
    return made
