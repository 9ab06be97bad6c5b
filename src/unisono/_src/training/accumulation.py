"""Gradients of several calls that an optimizer adds up, and then applies once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import contexts, function, sharded_update
from unisono._src.foundation import ambient
from unisono._src.foundation.options import (
    ReduceOp,
    VariableAggregation,
    VariableSynchronization,
)
from unisono._src.state import assignment, frames, storage
from unisono._src.state.variables import Variable
from unisono._src.strategies.base import Strategy
from unisono._src.values import collectives
from unisono._src.values.distributed import PerReplica

Arrays: TypeAlias = Sequence[jax.Array]


@final
@dataclasses.dataclass(frozen=True)
class Update:
    """What an optimizer does with a sum of gradients.

    Attributes:
        cells: returns the cells that it may change.
        change: returns their new values, given the old ones and the sums.
        find_owners: returns the position of the variable, by the position of each of
            its cells, for the variables at the positions that it is given.
    """

    cells: Callable[[], list[storage.Cell]]
    change: Callable[[Arrays, Arrays], list[jax.Array]]
    find_owners: Callable[[tuple[int, ...]], dict[int, int]]


@final
class Accumulation:
    """The sums of gradients between two updates.

    Args:
        every: how many calls make an update.
        name: the prefix of the names of the sums.
        variables: the variables that have gradients.
        update: the update.
    """

    def __init__(
        self, every: int, name: str, variables: Sequence[Variable], update: Update
    ) -> None:
        self._every = every
        self._update = update
        # Each replica adds to its own copy, without communication, until the update. A
        # sum of split variables is split like them: copies would be as many wholes.
        cells = [v.state_cell for v in variables]
        self._has_split_sums = any(c.split is not None for c in cells)
        kind, self._sums = VariableSynchronization, list[Variable]()
        for i, cell in enumerate(cells):
            own = f"{name}/sum_{i}"
            placement = ambient.current().placement
            if placement is not None and placement.plan is not None:
                placement.plan.follow(own, cell.name)
            total = Variable(
                functools.partial(jnp.zeros, cell.shape, cell.dtype),
                trainable=False,
                name=own,
                synchronization=kind.AUTO if self._has_split_sums else kind.ON_READ,
                aggregation=VariableAggregation.SUM,
            )
            self._sums.append(total)
        self._count, self._given = (
            Variable(
                first,
                trainable=False,
                name=f"{name}/{own}",
                aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for own, first in (
                ("accumulated", jnp.zeros((), jnp.int32)),
                ("given", jnp.zeros(len(variables), bool)),
            )
        )

    @property
    def variables(self) -> list[Variable]:
        """The sums, one for each variable, and two variables that count."""
        return [*self._sums, self._count, self._given]

    def checkpoint_children(self) -> dict[str, Any]:
        """Returns the variables by the names that they have in checkpoints."""
        counts = {"accumulated": self._count, "given": self._given}
        return {"sums": self._sums, **counts}

    def add(
        self,
        replica: contexts.ReplicaContext | None,
        gradients: Arrays,
        given: tuple[bool, ...],
    ) -> None:
        """Adds gradients to the sums, and updates if it is time."""
        if replica is not None and not self._has_split_sums:
            for total, gradient in zip(self._sums, gradients, strict=True):
                total.assign_add(gradient, read_value=False)
            contexts.merge_replicas(
                lambda _, marks: self._run_finish(find_idle(marks)), (given,)
            )
        elif replica is not None:
            # Copies: an object that all replicas have would be taken for one gradient,
            # and it is one of each replica.
            own = gradients if is_local() else list(map(jnp.array, gradients))
            contexts.merge_replicas(self._merge_sums, args=(own, given))
        else:
            self._run_add(gradients)
            self._run_finish(find_idle(given))

    def _merge_sums(
        self,
        strategy: Strategy,
        gradients: Sequence[jax.Array | PerReplica],
        given: Sequence[object],
    ) -> None:
        """Adds the gradients of all replicas to split sums, and updates if it is time.

        Each replica adds to its own parts, and updates its own parts, if it can.
        """
        idle, cells = find_idle(given), [v.state_cell for v in self._sums]
        local = is_local()
        if local:
            gradients = [_as_own(g, strategy.num_replicas_in_sync) for g in gradients]
        pairs = list(zip(gradients, self._sums, strict=True))
        if not (local and sharded_update.update(_add_all, cells, gradients, ())):
            reduced = strategy.extended.batch_reduce_to(ReduceOp.SUM, pairs)
            self._run_add([getattr(g, "whole", g) for g in reduced])

        def finish(old: list[jax.Array]) -> list[jax.Array]:
            return self._find_finished(old, idle, is_compiled=True)

        every = self._every_cell()
        if not (local and sharded_update.update(finish, every, (), ())):
            self._run_finish(idle)

    @functools.cached_property
    def _run_add(self) -> Callable[..., None]:
        """`_add_to_sums` as a compiled function, which no other thread interrupts."""
        return function.Function(self._add_to_sums)

    def _add_to_sums(self, gradients: Arrays) -> None:
        """Adds gradients, each of which counts once, to the sums."""
        target = frames.frame()
        for total, gradient in zip(self._sums, gradients, strict=True):
            cell = total.state_cell
            if cell.is_stacked:
                # The replicas' sums are added up later: one gets the gradient.
                assignment.change_copy(cell, 0, functools.partial(_add, gradient))
            else:
                target.set_whole(cell, _add(gradient, read(target, cell)))

    @functools.cached_property
    def _run_finish(self) -> Callable[..., None]:
        """`_finish` as a compiled function, which no other thread interrupts."""
        return function.Function(self._finish)

    def _every_cell(self) -> list[storage.Cell]:
        """Returns the cells of `_find_finished`: the shared ones, sums and counts."""
        return [*self._update.cells(), *(v.state_cell for v in self.variables)]

    def _finish(self, idle: tuple[int, ...]) -> None:
        """Counts the call; at the last one, reduces the sums and updates."""
        target = frames.frame()
        cells = self._every_cell()
        old = [read(target, c) for c in cells]
        new = self._find_finished(old, idle, target.is_compiled)
        for cell, value in zip(cells, new, strict=True):
            target.set_whole(cell, jnp.asarray(value, cell.dtype))

    def _find_finished(
        self, old: Arrays, idle: tuple[int, ...], is_compiled: bool
    ) -> list[jax.Array]:
        """Returns the values of `_every_cell` after a call.

        Args:
            old: the values before, with the gradients of this call in the sums.
            idle: the positions of the variables that have no gradient in this call.
            is_compiled: whether the count is not known yet.
        """
        first = len(old) - len(self._sums) - 2
        shared, sums = list(old[:first]), list(old[first:-2])
        count = old[-2] + 1
        local = is_local()
        now = np.isin(range(len(self._sums)), idle, invert=True)
        given = old[-1] | now
        # Only variables without a gradient now can have had none in all calls.
        owners = self._update.find_owners(idle)

        def apply(old: Arrays, sums: Arrays) -> list[jax.Array]:
            totals = [
                _reduce_sum(v.state_cell, s, local)
                for v, s in zip(self._sums, sums, strict=True)
            ]
            new = self._update.change(old, totals)
            for i, owner in owners.items():
                new[i] = jnp.where(given[owner], new[i], old[i])
            return [*new, *map(jnp.zeros_like, (*sums, count, given))]

        def keep(old: Arrays, sums: Arrays) -> list[jax.Array]:
            return [*old, *sums, count, given]

        is_last = count >= self._every
        # In a program the count is not known yet, so both branches become part of it.
        if is_compiled:
            return list(jax.lax.cond(is_last, apply, keep, shared, sums))
        return (apply if bool(is_last) else keep)(shared, sums)


def read(source: frames.StateFrame, cell: storage.Cell) -> jax.Array:
    """Returns the stored value of a cell; of one copy, on its replica's device."""
    return source.copy(cell, 0) if cell.copies == 1 else source.whole(cell)


def is_local() -> bool:
    """Whether the code is in a program that each device runs for its own replica."""
    port = ambient.current().port
    return port is not None and port.is_spmd


def _add(gradient: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.asarray(old + gradient, old.dtype)


def _as_own(gradient: jax.Array | PerReplica, replicas: int) -> PerReplica:
    """Returns a gradient of a replica's program as one of each replica."""
    if isinstance(gradient, PerReplica):
        return gradient
    return PerReplica.from_local(gradient, replicas)


def _add_all(given: list[jax.Array]) -> list[jax.Array]:
    """Returns sums and gradients, which follow them, added up."""
    count = len(given) // 2
    return list(map(_add, given[count:], given[:count]))


def _reduce_sum(cell: storage.Cell, value: jax.Array, local: bool) -> jax.Array:
    """Returns the sum over the replicas of the gradients that each accumulated."""
    if cell.copies == 1 or not cell.is_stacked:
        return value
    if local:
        total: jax.Array = collectives.reduce_local(ReduceOp.SUM, value, cell.copies)
        return total
    return jnp.sum(value, axis=0)


def find_idle(given: Sequence[object]) -> tuple[int, ...]:
    """Returns the positions of the variables without a gradient on any replica.

    Args:
        given: for each variable whether it has one; `PerReplica` if replicas differ.
    """
    every = [getattr(g, "values", (g,)) for g in given]
    return tuple(i for i, marks in enumerate(every) if not any(marks))
