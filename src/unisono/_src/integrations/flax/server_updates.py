"""NNX optimizers whose variables are on parameter servers: servers compute updates.

A worker's own update would be computed from values that other workers have changed
since they were read. See the module of the same name of the Keras integration.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import jax
import optax
from flax import nnx

from unisono._src.coordinator import server_group
from unisono._src.execution import server_update
from unisono._src.foundation import ambient
from unisono._src.state import frames, servers
from unisono._src.training import server_slots
from unisono._src.values import array_operators

# The parts of the updates of each optimizer, by cells and shapes of gradients; None if
# servers cannot compute it.
_parts: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of optimizers that keeps slots beside their variables."""

    @functools.wraps(original)
    def init(self: Any, model: Any, tx: Any, *args: Any, **kwargs: Any) -> None:
        original(self, model, tx, *args, **kwargs)
        cells = _find_cells(self, model)
        if cells is None:
            return
        treedef: Any
        params, treedef = jax.tree.flatten(_params(self, model))
        avals = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in params]
        # Optax knows which leaves of its state are like the parameters.
        owners = optax.tree_utils.tree_map_params(
            tx,
            lambda _, owner: owner,
            jax.eval_shape(tx.init, treedef.unflatten(avals)),
            treedef.unflatten(range(len(avals))),
            transform_non_params=lambda _: -1,
        )
        group = cells[0].home.group
        everywhere = servers.Home(group, "", tuple(range(group.count)))
        # The last one is the count of steps.
        every = zip(cells[len(avals) :], [*jax.tree.leaves(owners), -1], strict=True)
        for cell, owner in every:
            # A slot must be where its parameter is, or no server could compute the
            # update; what belongs to no parameter is on all of them.
            group.move(cell, everywhere if owner < 0 else cells[owner].home)

    return init


def _params(optimizer: Any, tree: Any) -> Any:
    """Return the arrays of a model, or of gradients, that an optimizer is for."""
    return nnx.as_pure(nnx.state(tree, optimizer.wrt, graph=optimizer.graph))


def _find_cells(optimizer: Any, model: Any) -> list[Any] | None:
    """Return the cells of parameters, slots and the count of steps, in order.

    Returns:
        None if not all of them are on parameter servers.
    """
    step = array_operators.find_own_variable(optimizer.step)
    if getattr(getattr(step, "state_cell", None), "home", None) is None:
        return None
    state = nnx.state(model, optimizer.wrt, graph=optimizer.graph)
    by_path = dict(nnx.iter_graph(model))
    slots = jax.tree.leaves(
        optimizer.opt_state, is_leaf=lambda x: isinstance(x, nnx.Variable)
    )
    every = [*(by_path[path] for path, _ in nnx.to_flat_state(state)), *slots]
    own = [array_operators.find_own_variable(v) for v in (*every, optimizer.step)]
    cells = [getattr(v, "state_cell", None) for v in own]
    is_away = all(c is not None and c.home is not None for c in cells)
    return cells if is_away else None


def update(optimizer: Any, model: Any, grads: Any, kwargs: dict[str, Any]) -> Any:
    """Let servers update a model and the slots of its optimizer.

    Args:
        optimizer: the optimizer.
        model: the model.
        grads: the gradients.
        kwargs: further arguments of the transformation.

    Returns:
        What the optimizer adds to the parameters, as this program sees it. None if
        nothing was done: the variables are not on servers, or the update of one server
        needs variables of another one.
    """
    cells = _find_cells(optimizer, model)
    if cells is None:
        return None
    given: list[Any]
    structure: Any
    given, structure = jax.tree.flatten(_params(optimizer, grads))
    count = len(given)
    slots: Any = jax.tree.structure(nnx.as_pure(optimizer.opt_state))

    def compute(old: Any, arrays: Any) -> tuple[Any, Any]:
        return optimizer.tx.update(  # type: ignore[no-any-return]
            structure.unflatten(arrays),
            slots.unflatten(old[count:-1]),
            structure.unflatten(old[:count]),
            **kwargs,
        )

    def change(old: list[Any], arrays: list[Any]) -> list[Any]:
        changes, found = compute(old, arrays)
        new = optax.apply_updates(structure.unflatten(old[:count]), changes)
        every = [*jax.tree.leaves(new), *jax.tree.leaves(found), old[-1] + 1]
        return [x.astype(c.dtype) for x, c in zip(every, cells, strict=True)]

    parts = _find_parts(optimizer, change, cells, given, kwargs)
    if parts is None:
        return None
    # Computed only if somebody uses it.
    result, _ = compute([frames.frame().whole(c) for c in cells], given)
    server_slots.apply_parts(parts, cells, given)
    return result


def _find_parts(
    optimizer: Any, change: Any, cells: Any, given: Any, kwargs: Any
) -> Any:
    """Return the servers' parts of an update; None if it cannot be cut."""
    known = _parts.setdefault(optimizer, {})
    shapes = [jax.ShapeDtypeStruct(g.shape, g.dtype) for g in given]
    # By the cells: another model may get the number in memory of one that is gone.
    key = tuple(cells), tuple((s.shape, s.dtype) for s in shapes), tuple(kwargs)
    if key not in known:
        try:
            if kwargs:
                raise server_update.CannotBeCutError(
                    f"The update is given {sorted(kwargs)}, which servers do not have."
                )
            # In no frame and no tape: the programs are for any later call.
            with ambient.push(state=None, tape=None):
                places = range(len(given))
                known[key] = server_slots.cut(change, cells, shapes, places)
        except server_update.CannotBeCutError as error:
            known[key] = None
            group = cells[0].home.group
            assert isinstance(group, server_group.Servers)
            group.warn_of_lost_updates("nnx.Optimizer", error)
    return known[key]
