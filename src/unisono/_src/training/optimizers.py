"""`Optimizer`: applies an Optax transformation to variables, as TensorFlow would."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import jax
import jax.numpy as jnp

from unisono._src.execution import contexts, function, gradient_tape, sharded_update
from unisono._src.execution.gradient_tape import GradientTape
from unisono._src.foundation import ambient
from unisono._src.foundation.options import (
    ReduceOp,
    VariableAggregation,
)
from unisono._src.machines import partition
from unisono._src.state import (
    description,
    frames,
    remote_state,
    sharded_variable,
    storage,
)
from unisono._src.state.variables import Variable
from unisono._src.strategies.base import Strategy
from unisono._src.training import accumulation, gradient_taps, part_updates
from unisono._src.training.part_updates import Gradient
from unisono._src.values.array_operators import find_own_variable
from unisono._src.values.indexed_slices import IndexedSlices, concatenate

if TYPE_CHECKING:
    import optax

Arrays: TypeAlias = Sequence[jax.Array]


def nest(values: Sequence[Any], groups: Sequence[int]) -> list[Any]:
    """Returns values in which those of a variable's parts are one list.

    Args:
        values: one for each part of each variable.
        groups: the number of parts of each variable; 1 for one that is whole.
    """
    given = iter(values)
    return [next(given) if n == 1 else [next(given) for _ in range(n)] for n in groups]


def find_owners(
    tx: optax.GradientTransformation, treedef: Any, groups: Sequence[int]
) -> list[int]:
    """Returns for each leaf of Optax's state the parameter that it belongs to.

    Args:
        tx: the transformation.
        treedef: the structure of its state.
        groups: the number of parts of each variable; see `nest`.

    Returns:
        The position of the part, or -1 for a leaf that belongs to none.
    """
    import optax

    # Optax knows which leaves of its state are like the parameters.
    found = optax.tree_utils.tree_map_params(
        tx,
        lambda _, owner: owner,
        treedef.unflatten(range(treedef.num_leaves)),
        nest(range(sum(groups)), groups),
        transform_non_params=lambda _: -1,
    )
    return jax.tree.leaves(found)


class Optimizer:
    """Updates variables with an Optax gradient transformation.

    In replica context, `apply_gradients` sums the gradients over the replicas once, and
    then updates every copy in the same way. If you divide the loss by the global batch
    size, you get the same weights on any number of replicas.

    Args:
        tx: an `optax.GradientTransformation`.
        variables: the variables to update. The optimizer creates its state immediately,
            in the current scope, on the devices of the variables.
        accumulate_steps: the number of calls whose gradients are accumulated on each
            replica; the last of them reduces and applies the sum.
        name: the prefix of the names of the optimizer's variables.

    Attributes:
        iterations: a variable that counts the updates.

    Raises:
        TypeError: `variables` contains something that is not a variable.
        ValueError: `accumulate_steps` is less than 1.

    >>> import optax, unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     weight = unisono.Variable(1.0)
    ...     optimizer = Optimizer(optax.sgd(0.1), [weight])
    >>> strategy.run(lambda: optimizer.apply_gradients([(2.0, weight)]))
    >>> round(float(weight.numpy()), 3)  # 1 - 0.1 * (2 + 2)
    0.6
    >>> int(optimizer.iterations.numpy())
    1
    """

    def __init__(
        self,
        tx: optax.GradientTransformation,
        variables: Sequence[Variable],
        accumulate_steps: int = 1,
        name: str = "optimizer",
    ) -> None:
        self._tx = tx
        found = [find_own_variable(v) for v in variables]
        # Each part of a variable in parts is a parameter of its own.
        self._variables = sharded_variable.parts(found)
        self._groups = [
            len(v.variables) if isinstance(v, sharded_variable.ShardedVariable) else 1
            for v in found
        ]
        self._check(self._variables)
        self.name = name
        part_updates.check(tx, self._variables, self._groups)
        self._servers: remote_state.RemoteUpdate | None = None
        group = _find_servers(self._variables)
        if group is not None:
            self._servers = group.make_update(self._variables, tx, self._groups)
            self._treedef: Any = self._servers.treedef
            self._slots = self._servers.make_slots(name)
        else:
            initial = self._make_slots()
            self._treedef = jax.tree.structure(initial)
            self._slots = [
                Variable(x, trainable=False, name=self._slot_name(i))
                for i, x in enumerate(jax.tree.leaves(initial))
            ]
        self.iterations = Variable(
            jnp.zeros((), jnp.int32),
            trainable=False,
            name=f"{name}/iterations",
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
        )
        if accumulate_steps < 1:
            raise ValueError(
                f"Expected accumulate_steps >= 1, received {accumulate_steps}."
            )
        self._accumulation = self._make_accumulation(accumulate_steps)

    def _make_accumulation(self, steps: int) -> accumulation.Accumulation | None:
        """Returns what adds gradients up; None if each call makes an update.

        Raises:
            ValueError: the variables are on parameter servers.
        """
        if steps == 1:
            return None
        if self._servers is not None:
            raise ValueError(
                "accumulate_steps is for replicas that compute together. Workers of a "
                "ParameterServerStrategy do not: average gradients in the scheduled "
                "function, over several batches."
            )
        update = accumulation.Update(
            self._shared_cells, self._change, self._find_owners
        )
        return accumulation.Accumulation(steps, self.name, self._variables, update)

    def _init(self, values: Sequence[jax.Array]) -> optax.OptState:
        """Returns Optax's first state for the values of all variables."""
        return self._tx.init(nest(values, self._groups))

    def _slot_name(self, index: int) -> str:
        """Returns the name of a leaf of Optax's state."""
        return f"{self.name}/slot_{index}"

    def _make_slots(self) -> optax.OptState:
        """Returns Optax's first state; in parts if variables are split."""
        cells = [v.state_cell for v in self._variables]
        placement = ambient.current().placement
        source = frames.frame()
        if accumulation.is_local():
            # A replica sees the variables whole; storing the state splits it.
            return self._init([source.copy(c, 0) for c in cells])
        if all(c.split is None for c in cells) or placement is None:
            is_known = not source.is_compiled
            return self._init(
                [
                    c.gather(None) if c.split and is_known else frames.peek(c)
                    for c in cells
                ]
            )
        # Compiled with the shardings of the result, so that no device ever holds a
        # large slot whole (docs/decisions/0017).
        params = [source.whole(c) if c.is_spread else frames.peek(c) for c in cells]
        flat, treedef = jax.tree.flatten(jax.eval_shape(self._init, params))
        if placement.plan is not None and placement.plan.has_rules:
            # A slot is cut as its variable is.
            for i, owner in enumerate(find_owners(self._tx, treedef, self._groups)):
                if owner >= 0:
                    placement.plan.follow(self._slot_name(i), cells[owner].name)
        names = map(self._slot_name, range(len(flat)))
        found = [
            _sharding_of(x, placement, n) for x, n in zip(flat, names, strict=True)
        ]
        targets = jax.tree.unflatten(treedef, found)
        return jax.jit(self._init, out_shardings=targets)(params)

    def __repr__(self) -> str:
        names = [v.name for v in self._variables]
        shown = ", ".join(names if len(names) < 5 else [*names[:3], "…", names[-1]])
        return f"<Optimizer of {shown}>"

    def _repr_html_(self) -> str:
        return description.describe(self.variables)._repr_html_()

    @staticmethod
    def _check(variables: Sequence[object]) -> None:
        """Raises unless all of `variables` are variables."""
        for v in variables:
            if not isinstance(v, Variable):
                raise TypeError(
                    f"Expected the variables to update, received {v!r} of type "
                    f"{type(v).__name__}."
                )

    @property
    def variables(self) -> list[Variable]:
        """The variables of the optimizer's state: first `iterations`, then the slots.

        >>> import optax, unisono
        >>> weight = unisono.Variable([1.0, 2.0])
        >>> optimizer = Optimizer(optax.sgd(0.1, momentum=0.9), [weight], name="sgd")
        >>> [v.name for v in optimizer.variables]
        ['sgd/iterations:0', 'sgd/slot_0:0']
        """
        others = self._accumulation.variables if self._accumulation else []
        return [self.iterations, *self._slots, *others]

    def _checkpoint_children(self) -> dict[str, Any]:
        """Returns the state by the names that it has in checkpoints."""
        slots: list[Any] = self._slots
        if self._servers is not None:
            # One entry for a variable, whatever its number of parts here.
            slots = self._servers.join_parts(slots)
        found: dict[str, Any] = {"iterations": self.iterations, "slots": slots}
        if self._accumulation is not None:
            found |= self._accumulation.checkpoint_children()
        return found

    @property
    def slots(self) -> Any:
        """The state of Optax, with an object in place of each array.

        The attribute `variable` of such an object is the variable that holds the array.

        >>> import optax, unisono
        >>> weight = unisono.Variable(1.0)
        >>> optimizer = Optimizer(optax.sgd(0.1, momentum=0.9), [weight])
        >>> optimizer.apply_gradients([(2.0, weight)])
        >>> (momentum,) = jax.tree.leaves(optimizer.slots)
        >>> float(momentum.variable.numpy())
        2.0
        """
        return self._treedef.unflatten([_Leaf(v) for v in self._slots])

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Gradient | None, Variable]]
    ) -> None:
        """Updates the variables.

        In replica context, it sums the gradients over the replicas first.

        Args:
            grads_and_vars: pairs of a gradient, `IndexedSlices` or None, and its
                variable. If no replica has a gradient for a variable, the variable and
                its slots do not change. If a variable occurs several times, its
                gradients are added, and it is updated once. Keras updates it once per
                gradient, which gives the same result for plain gradient descent.

        Raises:
            ValueError: the optimizer was not created for one of the variables, a
                gradient and its variable have different shapes, or all gradients are
                None.

        >>> import optax, unisono
        >>> weight, bias = unisono.Variable(1.0), unisono.Variable(1.0)
        >>> optimizer = Optimizer(optax.sgd(0.5), [weight, bias])
        >>> optimizer.apply_gradients([(1.0, weight), (None, bias)])
        >>> float(weight.numpy()), float(bias.numpy())
        (0.5, 1.0)
        """
        gradients = self._collect(grads_and_vars)
        frame = ambient.current()
        replica = frame.replica if frame.mode == ambient.REPLICA else None
        pairs = zip(gradients, self._variables, strict=True)
        is_away = self._servers is not None
        dense: list[Any] = [_sum_gradients(g, v, is_away) for g, v in pairs]
        given = tuple(bool(g) for g in gradients)
        gradient_taps.note(dense, self._variables, self.variables)
        if self._accumulation is not None:
            self._accumulation.add(replica, dense, given)
        elif replica is None or frame.port is None or frame.port.is_alone:
            self._run_update(dense, accumulation.find_idle(given))
        else:
            # `merge_call` is for a program's functions, which run once; this one may be
            # called again.
            contexts.merge_replicas(self._merge, args=(dense, given))

    def apply(
        self,
        grads: Sequence[Gradient | None],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        """Updates the variables with a list of gradients; see `apply_gradients`.

        Args:
            grads: a gradient, `IndexedSlices` or None for each variable.
            trainable_variables: the variables of the gradients; by default those that
                the optimizer was created for.

        Raises:
            ValueError: the numbers of gradients and variables differ, or
                `apply_gradients` raises it.

        >>> import optax, unisono
        >>> weight = unisono.Variable([1.0, 2.0])
        >>> optimizer = Optimizer(optax.sgd(0.5), [weight])
        >>> optimizer.apply([jnp.ones(2)])
        >>> weight.numpy().tolist()
        [0.5, 1.5]
        """
        wanted = self._variables if trainable_variables is None else trainable_variables
        self.apply_gradients(zip(grads, wanted, strict=True))

    def minimize(
        self,
        loss: jax.Array | Callable[[], jax.Array],
        var_list: Sequence[Any] | Variable | Callable[[], Sequence[Any]],
        grad_loss: jax.Array | None = None,
        name: str | None = None,
        tape: GradientTape | None = None,
    ) -> None:
        """Updates variables with the gradients of a loss; see `apply_gradients`.

        Args:
            loss: an array that was computed in the block of `tape`, or a function
                without arguments that computes one.
            var_list: the variables, or a function without arguments that returns them.
            grad_loss: the gradient of the loss itself, with which backpropagation
                starts; 1 by default.
            name: accepted for compatibility with TensorFlow and ignored.
            tape: the tape that has recorded the loss. Not needed if `loss` is a
                function.

        Raises:
            ValueError: `loss` is an array and `tape` is missing; or `apply_gradients`
                raises it.

        >>> import optax, unisono
        >>> weight = unisono.Variable(3.0)
        >>> optimizer = Optimizer(optax.sgd(0.1), [weight])
        >>> with unisono.GradientTape() as tape:
        ...     loss = weight * weight
        >>> optimizer.minimize(loss, [weight], tape=tape)
        >>> round(float(weight.numpy()), 3)
        2.4
        >>> optimizer.minimize(lambda: weight * weight, [weight])
        >>> round(float(weight.numpy()), 3)
        1.92
        """
        self.apply(*gradient_tape.differentiate_loss(loss, var_list, tape, grad_loss))

    def _collect(
        self, grads_and_vars: Iterable[tuple[Gradient | None, Variable]]
    ) -> list[list[Gradient]]:
        """Returns a list of the gradients of each variable, without None."""
        by_id: dict[int, list[Gradient]] = {id(v): [] for v in self._variables}
        for gradient, v in part_updates.split_gradients(grads_and_vars):
            # By identity: `==` of variables compares their elements.
            if id(v) not in by_id:
                raise ValueError(
                    f"The optimizer was not made for the variable {v.name}; give it "
                    "in `variables` when you make the optimizer."
                )
            if gradient is not None:
                by_id[id(v)].append(gradient)
        if not any(by_id.values()):
            names = [v.name for v in self._variables]
            raise ValueError(f"No gradients provided for any variable: {names}.")
        return [by_id[id(v)] for v in self._variables]

    def _merge(
        self, strategy: Strategy, gradients: Arrays, given: Sequence[object]
    ) -> None:
        """Sums the gradients of all replicas and updates the variables."""
        idle = accumulation.find_idle(given)
        # Split state first: each replica sums and updates its own parts (decision
        # 0017).
        if accumulation.is_local() and self._update_parts(gradients, idle):
            return
        pairs = list(zip(gradients, self._variables, strict=True))
        reduced = strategy.extended.batch_reduce_to(ReduceOp.SUM, pairs)
        # A mirrored sum is one array for all copies, which are updated by one program.
        self._run_update([getattr(g, "whole", g) for g in reduced], idle)

    @functools.cached_property
    def _run_update(self) -> Callable[..., None]:
        """The update as a compiled function, made when it is first needed."""
        # It joins a program that is being compiled, else it is a program of its own.
        return function.Function(self._update)

    def _update(self, gradients: Arrays, idle: tuple[int, ...]) -> None:
        """Updates all copies of the variables alike.

        Args:
            gradients: one for each variable, summed over the replicas.
            idle: the positions of the variables that have none, and stay as they are.
        """
        target = frames.frame()
        cells = self._shared_cells()
        if self._servers is not None:
            self._servers.apply(self._change, cells, gradients, idle)
            return
        old = [accumulation.read(target, c) for c in cells]
        kept = set(self._find_owners(idle))
        new = self._change(old, gradients)
        for i, (cell, value) in enumerate(zip(cells, new, strict=True)):
            if i not in kept:
                target.set_whole(cell, jnp.asarray(value, cell.dtype))

    def _update_parts(self, gradients: Arrays, idle: tuple[int, ...]) -> bool:
        """Lets each replica update its own parts of split variables, if possible.

        Returns:
            Whether it was possible, and the variables are updated.
        """
        count = len(self._variables)

        def change(inputs: list[jax.Array]) -> list[jax.Array]:
            return self._change(inputs[:-count], inputs[-count:])

        kept = set(self._find_owners(idle))
        return sharded_update.update(change, self._shared_cells(), gradients, kept)

    def _find_owners(self, idle: tuple[int, ...]) -> dict[int, int]:
        """Returns which cells belong to some of the variables.

        Args:
            idle: the positions of the variables.

        Returns:
            The position of the variable, by the position of each of its cells in
            `_shared_cells`: its own, and those of its slots.
        """
        if not idle:
            return {}
        # Looked up each time: it is rare that a variable has no gradient.
        owners = find_owners(self._tx, self._treedef, self._groups)
        every = [*range(len(self._variables)), *owners]
        return {k: owner for k, owner in enumerate(every) if owner in idle}

    def _shared_cells(self) -> list[storage.Cell]:
        """Returns the cells that an update may change, in the order of `_change`."""
        shared = [*self._variables, *self._slots, self.iterations]
        return [v.state_cell for v in shared]

    def _change(self, old: Arrays, gradients: Arrays) -> list[jax.Array]:
        """Returns new values of the shared cells, as a pure function of the old."""
        import optax

        count = len(self._variables)
        # To Optax a variable in parts is a list, so that masks and labels fit.
        params = nest(old[:count], self._groups)
        slots = self._treedef.unflatten(old[count:-1])
        given = nest(gradients, self._groups)
        changes, slots = self._tx.update(given, slots, params)
        # Flat again: `nest` made lists of the parts of a variable, in their order.
        new = jax.tree.leaves(optax.apply_updates(params, changes))
        for i, v in enumerate(self._variables):
            if v.constraint is not None:
                new[i] = v.constraint(new[i])
        return [*new, *jax.tree.leaves(slots), old[-1] + 1]


def _sharding_of(
    x: jax.ShapeDtypeStruct, placement: storage.Placement, name: str
) -> jax.sharding.Sharding:
    """Returns how a variable of the shape of `x` lies on the devices."""
    plan, topology = placement.plan, placement.topology
    split = plan.choose(topology, x.shape, name).split if plan else None
    if split is None:
        return topology.replicated_sharding
    return partition.sharding(topology, split)


@final
class _Leaf:
    """Holds a variable in Optax's state, so that JAX takes it for one leaf."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable

    def __repr__(self) -> str:
        return repr(self.variable)


def _sum_gradients(
    gradients: Sequence[Gradient], variable: Variable, may_be_sparse: bool
) -> jax.Array | IndexedSlices:
    """Returns the sum of a variable's gradients as an array; zeros for none.

    Args:
        gradients: the gradients.
        variable: the variable.
        may_be_sparse: whether rows stay `IndexedSlices`, if there is nothing else.
    """
    rows = [g for g in gradients if isinstance(g, IndexedSlices)]
    if may_be_sparse and rows and len(rows) == len(gradients):
        return concatenate(rows, None)
    if not gradients:
        # Zeros take its place in the collective, which all replicas must reach alike.
        return jnp.zeros(variable.shape, variable.dtype)
    return functools.reduce(operator.add, (_as_dense(g, variable) for g in gradients))


def _as_dense(gradient: Gradient, variable: Variable) -> jax.Array:
    """Returns a gradient as an array of the variable's shape."""
    if isinstance(gradient, IndexedSlices):
        if gradient.shape.rank is None:
            gradient = IndexedSlices(gradient.values, gradient.indices, variable.shape)
        return gradient.to_dense()
    dense = jnp.asarray(gradient)
    if dense.shape != variable.shape:
        raise ValueError(
            f"The gradient of {variable.name} has shape {dense.shape}, the variable "
            f"has {variable.shape}."
        )
    return dense


def _find_servers(variables: Sequence[Variable]) -> remote_state.RemoteState | None:
    """Returns the servers that keep variables; None if they are elsewhere.

    Raises:
        ValueError: some are on servers and others are not.
    """
    homes = [v.state_cell.home for v in variables]
    away = [home.group for home in homes if home is not None]
    if away and len(away) < len(homes):
        pairs = zip(variables, homes, strict=True)
        others = [v.name for v, home in pairs if home is None]
        raise ValueError(
            f"The variables {others} were made outside the scope of the "
            "ParameterServerStrategy, and the others in it. Make all of them in "
            "its scope, or use an optimizer for each group."
        )
    return away[0] if away else None
