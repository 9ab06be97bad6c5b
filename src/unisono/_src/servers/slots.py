"""An optimizer's state on parameter servers, and updates that servers compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient
from unisono._src.servers import placed_variables, row_updates, update_parts
from unisono._src.state import frames, remote_state, rows as rows_lib
from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.state.storage import Cell
from unisono._src.state.variables import Variable
from unisono._src.training import optimizers
from unisono._src.values import row_positions
from unisono._src.values.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    import optax


@final
class OptimizerUpdate(remote_state.RemoteUpdate):
    """The slots of variables that servers keep, and the programs that update both.

    A slot that belongs to one variable is kept beside it. Others, such as a count of
    steps, are kept on every server that has one of the variables; all copies change
    alike, because every update goes to all of these servers.

    Args:
        variables: the variables, part by part; servers keep them all.
        tx: the transformation.
        groups: the number of parts of each variable; see `optimizers.nest`.

    Attributes:
        treedef: the structure of Optax's state.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        tx: optax.GradientTransformation,
        groups: Sequence[int],
    ) -> None:
        self._groups = groups
        self._cells = [v.state_cell for v in variables]
        self._tx = tx
        self._avals = [_aval(c) for c in self._cells]
        # Only shapes: the coordinator never holds a slot, which may be a large table.
        state = jax.eval_shape(tx.init, optimizers.nest(self._avals, groups))
        self._slots, self.treedef = jax.tree.flatten(state)
        self._owners = optimizers.find_owners(tx, self.treedef, groups)
        used = {s for c in self._cells if c.home for s in c.home.servers}
        first = self._cells[0].home
        assert first is not None
        self._everywhere = remote_state.Home(first.group, "", tuple(sorted(used)))
        self._joined: list[Any] | None = None
        # By the numbers of rows of gradients, the variables that are updated by rows.
        self._tables: dict[Any, dict[int, tuple[int, ...]]] = {}
        # The parts of the update, for each set of variables without a gradient.
        self._parts: dict[Any, list[update_parts.UpdatePart]] = {}

    def make_slots(self, name: str) -> list[Variable]:
        """Returns the variables of Optax's state; servers compute their first values.

        Args:
            name: the prefix of their names.
        """
        made, homes = [], [remote_state.home_of(c) for c in self._cells]
        for i, (slot, owner) in enumerate(zip(self._slots, self._owners, strict=True)):
            home = self._everywhere if owner < 0 else homes[owner]
            made.append(
                placed_variables.make_zeros(
                    slot.shape, slot.dtype, f"{name}/slot_{i}", home
                )
            )
        cells = [*self._cells, *(v.state_cell for v in made)]

        def begin(old: list[Any], _: list[Any]) -> list[Any]:
            params = old[: len(self._cells)]
            slots = self._tx.init(optimizers.nest(params, self._groups))
            return [*params, *jax.tree.leaves(slots)]

        # The variables themselves stay as they are: only slots are written.
        kept = frozenset(range(len(self._cells)))
        found = update_parts.cut(
            begin, [_aval(c) for c in cells], [], _homes(cells), [], kept
        )
        remote_state.apply_all([_change(p, cells, ()) for p in found])
        return made

    def join_parts(self, slots: Sequence[Variable]) -> list[Any]:
        """Returns slots with those of the parts of a variable as one."""
        groups = self._groups
        if self._joined is not None:
            return self._joined
        # Optax's trees have the parts of a variable one after the other.
        first = {sum(groups[:i]): n for i, n in enumerate(groups) if n > 1}
        made, i = list[Any](), 0
        while i < len(slots):
            owner = max(self._owners[i], 0)
            own = slots[i : i + first.get(self._owners[i], 1)]
            parts = self._cells[owner : owner + len(own)]
            # A slot may have another shape than its variable, as a factored moment has.
            is_like = all(s.shape == c.shape for s, c in zip(own, parts, strict=True))
            if len(own) > 1 and is_like:
                made.append(ShardedVariable(own, own[0].name.partition(":")[0]))
                i += len(own)
            else:
                made.append(slots[i])
                i += 1
        self._joined = made
        return made

    def apply(
        self,
        change: remote_state.UpdateFunction,
        cells: Sequence[Cell],
        gradients: Sequence[Any],
        idle: tuple[int, ...],
    ) -> None:
        """Lets the servers update variables and slots.

        Args:
            change: a function from the values of cells and the gradients to new values.
            cells: those of variables, slots and the count of updates.
            gradients: an array or `IndexedSlices` for each variable.
            idle: the positions of variables that have none.
        """
        # For each server: compute what it needs of the gradients here, and send its
        # program with that. Rows without a gradient are left out where that gives the
        # same numbers.
        target = frames.frame()
        tables = self._find_tables(change, cells, gradients)
        rows = {i: _join(gradients[i]) for i in tables}
        given = [rows[i][1] if i in rows else g for i, g in enumerate(gradients)]
        flat, structure = jax.tree.flatten(given)
        where = {i: x for i, (x, _) in rows.items()}
        counts = [len(jax.tree.leaves(g)) for g in given]
        numbers = [sum(counts[:i]) for i in range(len(counts))]
        for part in self._find_parts(change, cells, flat, structure, idle, tables):
            program = part.operands
            operands = jax.core.eval_jaxpr(program.jaxpr, program.consts, *flat)
            pairs = _sparse_operands(part, given)
            made = _change(part, cells, tuple(operands), pairs)
            _apply(target, _add_rows(made, part, tables, where, numbers))

    def _find_tables(
        self,
        change: remote_state.UpdateFunction,
        cells: Sequence[Cell],
        gradients: Sequence[jax.Array | IndexedSlices],
    ) -> dict[int, tuple[int, ...]]:
        """Returns the variables of which only the rows with a gradient are updated.

        Returns:
            The places of the cells of each, itself and its slots, by its position.
        """
        shapes = tuple(
            g.indices.shape[0] if isinstance(g, IndexedSlices) else -1
            for g in gradients
        )
        if shapes not in self._tables:
            owners = [*range(len(self._cells)), *self._owners, -1]
            avals, whole = [_aval(c) for c in cells], [_aval(c) for c in self._cells]
            found = {}
            for i, count in enumerate(shapes):
                # With as many rows as the variable has, nothing would be saved.
                if not 0 <= count < whole[i].shape[0]:
                    continue
                its = tuple(k for k, o in enumerate(owners) if o == i)
                is_like = all(avals[k].shape == whole[i].shape for k in its)
                # With one row, a function of all rows would look like one of each row.
                with ambient.push(state=None, tape=None):
                    is_found = is_like and row_updates.is_by_rows(
                        change, avals, whole, its, i, max(count, 2)
                    )
                if is_found:
                    found[i] = its
            # By numbers of rows: the decision does not depend on the numbers in them.
            self._tables[shapes] = found
        return self._tables[shapes]

    def _find_parts(
        self,
        change: remote_state.UpdateFunction,
        cells: Sequence[Cell],
        flat: Sequence[jax.Array],
        structure: jax.tree_util.PyTreeDef,
        idle: tuple[int, ...],
        tables: dict[int, tuple[int, ...]],
    ) -> list[update_parts.UpdatePart]:
        """Returns the parts of the update for gradients of certain shapes.

        Args:
            change: see `apply`.
            cells: see `apply`.
            flat: the arrays of all gradients; `IndexedSlices` have two.
            structure: which of them belong together.
            idle: see `apply`.
            tables: the variables of which only some rows are updated.
        """
        shapes = tuple((x.shape, x.dtype) for x in flat)
        key = (idle, shapes, structure, tuple(tables))
        found = self._parts.get(key)
        if found is None:
            # In the order of `cells`: variables, slots, and the count of updates.
            owners = [*range(len(self._cells)), *self._owners, -1]
            kept = frozenset(i for i, o in enumerate(owners) if o in idle and o >= 0)
            given = [jax.ShapeDtypeStruct(*s) for s in shapes]
            gradients = structure.unflatten(given)
            avals = [_aval(c) for c in cells]
            # Of a variable that is updated by rows, only these enter the program.
            for i, places in tables.items():
                avals = [
                    jax.ShapeDtypeStruct(gradients[i].shape, x.dtype)
                    if k in places
                    else x
                    for k, x in enumerate(avals)
                ]
            counts = [len(jax.tree.leaves(g)) for g in gradients]
            whose = [i for i, n in enumerate(counts) for _ in range(n)]

            def change_flat(old: list[Any], arrays: list[Any]) -> list[Any]:
                pairs = zip(structure.unflatten(arrays), self._cells, strict=True)
                new: list[Any] = change(old, [_as_dense(g, c) for g, c in pairs])
                return [x.astype(c.dtype) for x, c in zip(new, cells, strict=True)]

            found = self._parts[key] = update_parts.cut(
                change_flat, avals, given, _homes(cells), whose, kept
            )
        return found


def cut(
    change: remote_state.UpdateFunction,
    cells: Sequence[Cell],
    gradients: Sequence[jax.ShapeDtypeStruct],
    owners: Sequence[int],
) -> list[update_parts.UpdatePart]:
    """Returns the servers' parts of an update; `apply_parts` makes it.

    Args:
        change: a function from the values of cells and the gradients to new values.
        cells: the cells.
        gradients: the shape and type of each gradient.
        owners: for each gradient, the position of the cell that it is for.

    Raises:
        CannotBeCutError: a server would need the variables of another one.
    """
    avals, homes = [_aval(c) for c in cells], _homes(cells)
    return update_parts.cut(change, avals, gradients, homes, owners, frozenset())


def apply_parts(
    parts: Sequence[update_parts.UpdatePart],
    cells: Sequence[Cell],
    gradients: Sequence[Any],
) -> None:
    """Lets servers make an update.

    Args:
        parts: the parts of the update, of `cut`.
        cells: the cells.
        gradients: an array for each gradient.
    """
    target = frames.frame()
    for part in parts:
        program = part.operands
        operands = jax.core.eval_jaxpr(program.jaxpr, program.consts, *gradients)
        _apply(target, _change(part, cells, tuple(operands)))


def _join(gradient: IndexedSlices) -> tuple[Any, Any]:
    """Returns the positions of a gradient's rows, each once, and the sums of rows."""
    places = jnp.asarray(gradient.indices)
    count = places.shape[0]
    # Of a fixed size, because this may be traced: the rest is filled up with `ABSENT`.
    found, number = jnp.unique(
        places, size=count, fill_value=rows_lib.ABSENT, return_inverse=True
    )
    values = jnp.asarray(gradient.values)
    total = jnp.zeros(values.shape, values.dtype).at[number.reshape(-1)].add(values)
    present = (found != rows_lib.ABSENT).reshape(count, *[1] * (values.ndim - 1))
    return found, jnp.where(present, total, jnp.zeros((), values.dtype))


def _add_rows(
    change: remote_state.Change,
    part: update_parts.UpdatePart,
    tables: dict[int, tuple[int, ...]],
    where: dict[int, Any],
    numbers: Sequence[int],
) -> remote_state.Change:
    """Returns a change with the positions of the rows that it is for.

    Args:
        change: the change.
        part: the part of the update that it makes.
        tables: the places of the cells of each variable that is updated by rows.
        where: the positions of the rows of each.
        numbers: the number of each variable's gradient among all arrays of gradients.
    """
    every = (*part.written, *part.reads)
    operands, rows, sparse = list(change.operands), [], list(change.sparse)
    for variable, places in tables.items():
        own = [i for i, place in enumerate(every) if place in places]
        if not own:
            continue
        rows += [(i, len(operands)) for i in own]
        operands.append(where[variable])
        # The rows themselves, if the part needs them as they are.
        if numbers[variable] in part.sent:
            place = part.sent.index(numbers[variable])
            sparse.append((len(operands) - 1, place, where[variable].shape[0]))
    return dataclasses.replace(
        change, operands=tuple(operands), rows=tuple(rows), sparse=tuple(sparse)
    )


def _as_dense(gradient: jax.Array | IndexedSlices, cell: Cell) -> jax.Array:
    """Returns a gradient as an array; rows outside the variable are left out."""
    if not isinstance(gradient, IndexedSlices):
        return gradient
    zeros = jnp.zeros(cell.shape, cell.dtype)
    return zeros.at[gradient.indices].add(gradient.values, **row_positions.LEAVE_OUT)


def _apply(target: frames.StateFrame, change: remote_state.Change) -> None:
    """Makes a change, whose new values are computed here only if they are read."""

    def compute() -> list[Any]:
        wholes = [target.whole(c) for c in (*change.cells, *change.reads)]
        where = {i: change.operands[place] for i, place in change.rows}
        apart = {place for _, place in change.rows}
        rest = [x for i, x in enumerate(change.operands) if i not in apart]
        given = [
            rows_lib.take(x, where[i]) if i in where else x
            for i, x in enumerate(wholes)
        ]
        program = change.program
        assert program is not None
        new = jax.core.eval_jaxpr(program.jaxpr, program.consts, *given, *rest)
        return [
            wholes[i].at[where[i]].set(x, **row_positions.LEAVE_OUT)
            if i in where
            else x
            for i, x in enumerate(new)
        ]

    target.change(change, compute)


def _sparse_operands(
    part: update_parts.UpdatePart, gradients: Sequence[Any]
) -> tuple[tuple[int, int, int], ...]:
    """Returns which operands of a part are positions of rows, and the rows."""
    number, found = 0, []
    for gradient in gradients:
        if isinstance(gradient, IndexedSlices):
            # The order of its children: rows, then positions.
            both = number + 1, number
            if all(x in part.sent for x in both):
                places = [part.sent.index(x) for x in both]
                found.append((*places, gradient.indices.shape[0]))
        number += len(jax.tree.leaves(gradient))
    return tuple(found)


def _change(
    part: update_parts.UpdatePart,
    cells: Sequence[Cell],
    operands: tuple[Any, ...],
    sparse: tuple[tuple[int, int, int], ...] = (),
) -> remote_state.Change:
    return remote_state.Change(
        tuple(cells[i] for i in part.written),
        "program",
        operands,
        part.program,
        tuple(cells[i] for i in part.reads),
        part.server,
        sparse,
    )


def _homes(cells: Sequence[Cell]) -> list[tuple[int, ...]]:
    return [remote_state.home_of(c).servers for c in cells]


def _aval(cell: Cell) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(cell.shape, cell.dtype)
