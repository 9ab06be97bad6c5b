"""`Optimizer`: any Optax transformation over variables, with TensorFlow's semantics."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import function, sharded_update
from unisono._src.foundation import ambient
from unisono._src.foundation.options import (
    ReduceOp,
    VariableAggregation,
    VariableSynchronization,
)
from unisono._src.foundation.public_names import publish
from unisono._src.machines import partition
from unisono._src.state import frames
from unisono._src.state.variables import Variable
from unisono._src.values import collectives
from unisono._src.values.array_operators import own
from unisono._src.values.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    import optax


class Optimizer:
    """Updates variables by an Optax gradient transformation.

    In replica context `apply_gradients` sums the gradients over the replicas, once,
    and then updates every copy alike; so a loss divided by the global batch size
    gives the same weights on any number of replicas.

    Args:
        tx: an `optax.GradientTransformation`.
        variables: what it will update. Its state is made now, in the scope in which
            the optimizer is made, colocated with the variables.
        accumulate_steps: gradients of this many calls are added up locally, and the
            sum is reduced and applied at the last of them.
        name: prefix of the state's names.
    """

    def __init__(
        self,
        tx: optax.GradientTransformation,
        variables: Sequence[Variable],
        accumulate_steps: int = 1,
        name: str = "optimizer",
    ) -> None:
        self._tx = tx
        self._variables = [own(v) for v in variables]
        self._check(self._variables)
        self.name = name
        initial = self._first_slots()
        leaves = jax.tree.leaves(initial)
        self._treedef: Any = jax.tree.structure(initial)
        self._slots = [
            Variable(x, trainable=False, name=f"{name}/slot_{i}")
            for i, x in enumerate(leaves)
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
        self._every = accumulate_steps
        self._sums: list[Variable] = []
        self._count: Variable | None = None
        self._given: Variable | None = None
        if accumulate_steps > 1:
            self._make_accumulators()

    def _first_slots(self) -> Any:
        """Optax's first state; made by parts for variables that are cut."""
        cells = [v._cell for v in self._variables]
        placement = ambient.current().placement
        source = frames.frame()
        if _is_local():
            # A replica has them whole; what it makes of them is cut when it is stored.
            return self._tx.init([source.copy(c, 0) for c in cells])
        if all(c.split is None for c in cells) or placement is None:
            is_known = not source.is_compiled
            return self._tx.init(
                [
                    c.gathered(0) if c.split and is_known else frames.peek(c)
                    for c in cells
                ]
            )
        params = [frames.peek(c) for c in cells]
        shapes = jax.eval_shape(self._tx.init, params)
        targets = jax.tree.map(lambda x: _target(x, placement), shapes)
        return jax.jit(self._tx.init, out_shardings=targets)(params)

    def _make_accumulators(self) -> None:
        self._sums = [
            Variable(
                jnp.zeros(v.shape, v.dtype),
                name=f"{self.name}/sum_{i}",
                synchronization=VariableSynchronization.ON_READ,
                aggregation=VariableAggregation.SUM,
            )
            for i, v in enumerate(self._variables)
        ]
        self._count, self._given = (
            Variable(
                first,
                trainable=False,
                name=f"{self.name}/{name}",
                aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for name, first in (
                ("accumulated", jnp.zeros((), jnp.int32)),
                ("given", jnp.zeros(len(self._variables), bool)),
            )
        )

    @staticmethod
    def _check(variables: Sequence[Any]) -> None:
        for v in variables:
            if not isinstance(v, Variable):
                raise TypeError(
                    f"Expected the variables to update, received {v!r} of type "
                    f"{type(v).__name__}."
                )

    @property
    def variables(self) -> list[Variable]:
        """The optimizer's own state: iterations, then slots."""
        counts = [v for v in (self._count, self._given) if v is not None]
        return [self.iterations, *self._slots, *self._sums, *counts]

    def _checkpoint_children(self) -> dict[str, Any]:
        found: dict[str, Any] = {"iterations": self.iterations, "slots": self._slots}
        if self._count is not None:
            found |= {"accumulated": self._count, "sums": self._sums}
            found["given"] = self._given
        return found

    @property
    def slots(self) -> Any:
        """Optax's state, with a variable in place of each array."""
        return self._treedef.unflatten([_Leaf(v) for v in self._slots])

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Update the variables.

        Args:
            grads_and_vars: a gradient, `IndexedSlices` or None for each variable.
                Variables without a gradient on any replica, and their slots, stay as
                they are. Gradients of a variable that is given several times are
                added up, and it is updated once; Keras makes an update of each, which
                for plain gradient descent is the same.

        Raises:
            ValueError: a variable that the optimizer was not made for, or no
                gradient at all.
        """
        gradients = self._ordered(grads_and_vars)
        frame = ambient.current()
        replica = frame.replica if frame.mode == ambient.REPLICA else None
        own = [_dense(g, v) for g, v in zip(gradients, self._variables, strict=True)]
        given = tuple(bool(g) for g in gradients)
        if self._every > 1:
            self._accumulate(replica, own, given)
        elif replica is None or frame.port.replicas == 1:
            self._run_update(own, _idle(given))
        else:
            replica._merge_call(self._merge, args=(own, given))

    def apply(
        self,
        grads: Sequence[Any],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        """Update the variables from gradients in their order."""
        wanted = self._variables if trainable_variables is None else trainable_variables
        self.apply_gradients(zip(grads, wanted, strict=True))

    def _ordered(
        self, grads_and_vars: Iterable[tuple[Any, Variable]]
    ) -> list[list[Any]]:
        """The gradients of each variable."""
        by_id: dict[int, list[Any]] = {id(v): [] for v in self._variables}
        for gradient, given in grads_and_vars:
            v = own(given)
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

    def _merge(self, strategy: Any, gradients: Sequence[Any], given: Any) -> None:
        idle = _idle(given)
        if _is_local() and self._update_parts(gradients, idle):
            return
        pairs = list(zip(gradients, self._variables, strict=True))
        reduced = strategy.extended.batch_reduce_to(ReduceOp.SUM, pairs)
        self._run_update([getattr(g, "whole", g) for g in reduced], idle)

    @functools.cached_property
    def _run_update(self) -> Any:
        # Part of the program when one is being made, else a program of its own.
        return function.Function(self._update)

    def _update(self, gradients: Sequence[Any], idle: tuple[int, ...]) -> None:
        """One update of what all copies share: gradients are equal on all of them.

        Args:
            gradients: one for each variable.
            idle: which of the variables have none, and shall stay as they are.
        """
        target = frames.frame()
        cells = self._shared_cells()
        old = [_stored(target, c) for c in cells]
        kept = self._kept(idle)
        new = self._change(old, gradients)
        for i, (cell, value) in enumerate(zip(cells, new, strict=True)):
            if i not in kept:
                target.set_whole(cell, jnp.asarray(value, cell.dtype))

    def _kept(self, idle: tuple[int, ...]) -> set[int]:
        """Positions of the cells that an update leaves as they are."""
        return set(self._owned(idle))

    def _update_parts(self, gradients: Sequence[Any], idle: tuple[int, ...]) -> bool:
        """Let each replica update its parts of what is cut, if that can be done."""
        count = len(self._variables)

        def change(inputs: list[Any]) -> list[Any]:
            return self._change(inputs[:-count], inputs[-count:])

        kept = self._kept(idle)
        return sharded_update.update(change, self._shared_cells(), gradients, kept)

    def _owned(self, idle: tuple[int, ...]) -> dict[int, int]:
        """Positions of some of the variables and of their slots: whose they are."""
        import optax

        if not idle:
            return {}
        owners = optax.tree_utils.tree_map_params(
            self._tx,
            lambda _, owner: owner,
            self._treedef.unflatten(range(len(self._slots))),
            list(range(len(self._variables))),
            transform_non_params=lambda _: -1,
        )
        every = [*range(len(self._variables)), *jax.tree.leaves(owners)]
        return {k: owner for k, owner in enumerate(every) if owner in idle}

    def _shared_cells(self) -> list[frames.Cell]:
        shared = [*self._variables, *self._slots, self.iterations]
        return [v._cell for v in shared]

    def _change(self, old: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """New values of the shared cells, as a pure function of the old ones."""
        import optax

        count = len(self._variables)
        params = list(old[:count])
        slots = self._treedef.unflatten(old[count:-1])
        changes, slots = self._tx.update(list(gradients), slots, params)
        new = optax.apply_updates(params, changes)
        for i, v in enumerate(self._variables):
            if v.constraint is not None:
                new[i] = v.constraint(new[i])
        return [*new, *jax.tree.leaves(slots), old[-1] + 1]

    # Accumulation.

    def _accumulate(
        self, replica: Any, gradients: Sequence[Any], given: tuple[bool, ...]
    ) -> None:
        target = frames.frame()
        for total, gradient in zip(self._sums, gradients, strict=True):
            if replica is not None:
                total.assign_add(gradient, read_value=False)
            else:
                old = target.copy(total._cell, 0)
                target.set_copy(total._cell, 0, old + gradient)
        if replica is None:
            self._finish(_idle(given))
        else:
            replica._merge_call(lambda _, marks: self._finish(_idle(marks)), (given,))

    def _finish(self, idle: tuple[int, ...]) -> None:
        """Count the call; at the last one reduce the sums and update."""
        assert self._count is not None and self._given is not None
        target = frames.frame()
        cells = self._shared_cells()
        local = _is_local()
        old = [_stored(target, c) for c in cells]
        sums = [_stored(target, v._cell) for v in self._sums]
        count = _stored(target, self._count._cell) + 1
        is_last = count >= self._every
        now = np.isin(range(len(self._variables)), idle, invert=True)
        given = _stored(target, self._given._cell) | now
        owned = self._owned(idle)

        def apply(old: Any, sums: Any) -> Any:
            totals = [
                _total(v._cell, s, local) for v, s in zip(self._sums, sums, strict=True)
            ]
            new = self._change(old, totals)
            for i, owner in owned.items():
                new[i] = jnp.where(given[owner], new[i], old[i])
            return new, jax.tree.map(jnp.zeros_like, (sums, count, given))

        def keep(old: Any, sums: Any) -> Any:
            return list(old), (list(sums), count, given)

        if target.is_compiled:
            new, rest = jax.lax.cond(is_last, apply, keep, old, sums)
        else:
            new, rest = (apply if bool(is_last) else keep)(old, sums)
        for cell, value in zip(cells, new, strict=True):
            target.set_whole(cell, jnp.asarray(value, cell.dtype))
        accumulated = [*self._sums, self._count, self._given]
        for v, value in zip(accumulated, jax.tree.leaves(rest), strict=True):
            target.set_whole(v._cell, value)


def _target(x: Any, placement: frames.Placement) -> Any:
    split = partition.choose(placement.topology, placement.split_above, x.shape)
    if split is None:
        return placement.topology.replicated
    return partition.sharding(placement.topology, split)


def _stored(source: frames.StateFrame, cell: frames.Cell) -> Any:
    """What a cell stores, where the replica computes if there is one only."""
    return source.copy(cell, 0) if cell.copies == 1 else source.whole(cell)


def _is_local() -> bool:
    port = ambient.current().port
    return port is not None and port.is_spmd


def _total(cell: frames.Cell, value: Any, local: bool) -> Any:
    """A sum over replicas of what each has accumulated."""
    if cell.copies == 1 or not cell.is_stacked:
        return value
    if local:
        return collectives.reduce_local(ReduceOp.SUM, value, cell.copies)
    return jnp.sum(value, axis=0)


@final
class _Leaf:
    """Keeps a variable whole inside Optax's state tree."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable

    def __repr__(self) -> str:
        return repr(self.variable)


def _idle(given: Sequence[Any]) -> tuple[int, ...]:
    """Which variables have no gradient on any replica.

    Args:
        given: for each variable whether it has one; `PerReplica` if replicas differ.
    """
    every = [getattr(g, "values", (g,)) for g in given]
    return tuple(i for i, marks in enumerate(every) if not any(marks))


def _dense(gradients: Sequence[Any], variable: Variable) -> Any:
    """The sum of a variable's gradients."""
    if not gradients:
        return jnp.zeros(variable.shape, variable.dtype)
    return functools.reduce(operator.add, (_as_dense(g, variable) for g in gradients))


def _as_dense(gradient: Any, variable: Variable) -> Any:
    if isinstance(gradient, IndexedSlices):
        if gradient.dense_shape is None:
            gradient = IndexedSlices(gradient.values, gradient.indices, variable.shape)
        return gradient.to_dense()
    gradient = jnp.asarray(gradient)
    if gradient.shape != variable.shape:
        raise ValueError(
            f"The gradient of {variable.name} has shape {gradient.shape}, the variable "
            f"has {variable.shape}."
        )
    return gradient


publish("unisono.optimizers", Optimizer)
