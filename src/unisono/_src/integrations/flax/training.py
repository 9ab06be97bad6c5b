"""The behaviour of NNX optimizers and metrics in replica context."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import numpy as np
import optax
from flax import nnx

from unisono._src.execution import contexts, function, sharded_update
from unisono._src.foundation import ambient, errors
from unisono._src.foundation.options import ReduceOp
from unisono._src.state import frames, remote_state, replica_frame
from unisono._src.strategies.base import Strategy
from unisono._src.training import gradient_taps
from unisono._src.values import array_operators

# The compiled updates of each optimizer. Weak keys, so that they go with the optimizer.
_updates: weakref.WeakKeyDictionary[
    nnx.Optimizer[Any], dict[object, function.Function[..., object]]
] = weakref.WeakKeyDictionary()


def wrap_update(original: Callable[..., object]) -> Callable[..., object]:
    """Return an `Optimizer.update` that first sums the gradients of the replicas."""

    @functools.wraps(original)
    def update(
        self: nnx.Optimizer[Any], model: nnx.Module, grads: object, /, **kwargs: object
    ) -> object:
        frame = ambient.current()
        if frame.strategy is None or frame.mode != ambient.REPLICA:
            found = _update_on_servers(self, model, grads, kwargs)
            return original(self, model, grads, **kwargs) if found is None else found
        leaves, structure = jax.tree.flatten(grads)
        _note_gradients(self, model, leaves)
        merge = functools.partial(
            _reduce_and_update, self, original, model, structure, kwargs
        )
        # As a flat list: `merge_call` regroups what it is given, and NNX states are
        # structures that only JAX knows.
        return contexts.merge_replicas(merge, args=(leaves,))

    return update


def _note_gradients(
    optimizer: Any, model: nnx.Module, leaves: Sequence[jax.Array]
) -> None:
    """Write the gradients where they are compared, if somebody collects them."""
    find = array_operators.find_own_variable
    by_path = dict(nnx.iter_graph(model))
    state = nnx.to_flat_state(nnx.state(model, optimizer.wrt, graph=optimizer.graph))
    own = [find(by_path[path]) for path, _ in state]
    slots = jax.tree.leaves(
        (optimizer.opt_state, optimizer.step),
        is_leaf=lambda x: isinstance(x, nnx.Variable),
    )
    if len(own) == len(leaves):
        gradient_taps.note(leaves, own, map(find, slots))


def _check_made_in(strategy: Strategy, node: object, what: str) -> None:
    """Raise if a variable of a model or optimizer was made outside every scope.

    Args:
        strategy: the strategy whose replicas update the variables.
        node: the model or optimizer.
        what: which of the two it is, for the message.

    Raises:
        ValueError: a variable was made outside.
    """
    for path, found in nnx.iter_graph(node):
        if not isinstance(found, nnx.Param | nnx.OptState):
            continue
        is_array = isinstance(found.get_raw_value(), jax.Array)
        if is_array and not hasattr(found, "_unisono_variable"):
            where = ".".join(map(str, path)) or type(found).__name__
            message = (
                f"The variable '{where}' of the {what} was not created in the "
                f"distribution strategy scope of {strategy!r}, whose replicas update "
                "it. Create the model and its nnx.Optimizer inside "
                "`with strategy.scope():`."
            )
            raise errors.add_section(ValueError(message), "Not created in the scope")


def _reduce_and_update(
    optimizer: nnx.Optimizer[Any],
    original: Callable[..., object],
    model: nnx.Module,
    structure: jax.tree_util.PyTreeDef,
    kwargs: dict[str, object],
    strategy: Strategy,
    leaves: Sequence[jax.Array],
) -> object:
    """Sum the gradients and update all copies alike, in cross-replica context."""
    known = _updates.setdefault(optimizer, {})
    key = (id(model), structure)
    if key not in known:
        _check_made_in(strategy, optimizer, "optimizer")
        _check_made_in(strategy, model, "model")
    if _update_parts(optimizer, model, structure.unflatten, kwargs, leaves):
        return None
    everywhere = array_operators.find_own_variable(optimizer.step)
    # The count of steps is mirrored: gradients go wherever its copies are.
    pairs = [(g, everywhere) for g in leaves]
    summed = strategy.extended.batch_reduce_to(ReduceOp.SUM, pairs)
    arrays = [getattr(g, "whole", g) for g in summed]
    found = _update_on_servers(optimizer, model, structure.unflatten(arrays), kwargs)
    if found is not None:
        return found
    if key not in known:
        # A strong reference would keep the optimizer, and so the entry, for ever.
        alive = weakref.ref(optimizer)

        def update(arrays: list[jax.Array], kwargs: dict[str, object]) -> None:
            original(alive(), model, structure.unflatten(arrays), **kwargs)

        known[key] = function.Function(update)
    return known[key](arrays, kwargs)


def wrap_welford(original: Callable[..., None]) -> Callable[..., None]:
    """Return the `__init__` of the metric `Welford`, which refuses several replicas.

    The states of the replicas of other metrics are added up; a running mean and
    variance cannot be.
    """

    @functools.wraps(original)
    def init(self: object, *args: object, **kwargs: object) -> None:
        strategy = ambient.current().strategy
        if strategy is not None and strategy.num_replicas_in_sync > 1:
            raise ValueError(
                "nnx.metrics.Welford keeps a running mean, which cannot be added up "
                f"over {strategy.num_replicas_in_sync} replicas. Use "
                "nnx.metrics.Average for the mean, or update a Welford made outside "
                "the scope with what strategy.gather returns."
            )
        original(self, *args, **kwargs)

    return init


# Optimizers whose variables are on parameter servers.


def wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of optimizers that keeps slots beside their variables."""

    @functools.wraps(original)
    def init(self: Any, model: Any, tx: Any, *args: Any, **kwargs: Any) -> None:
        original(self, model, tx, *args, **kwargs)
        cells = _find_cells_on_servers(self, model)
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
        everywhere = remote_state.Home(group, "", tuple(range(group.count)))
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
        None if not all of them are variables of a strategy.
    """
    state = nnx.state(model, optimizer.wrt, graph=optimizer.graph)
    by_path = dict(nnx.iter_graph(model))
    slots = jax.tree.leaves(
        optimizer.opt_state, is_leaf=lambda x: isinstance(x, nnx.Variable)
    )
    every = [*(by_path[path] for path, _ in nnx.to_flat_state(state)), *slots]
    own = [array_operators.find_own_variable(v) for v in (*every, optimizer.step)]
    cells = [getattr(v, "state_cell", None) for v in own]
    return None if any(c is None for c in cells) else cells


def _find_cells_on_servers(optimizer: Any, model: Any) -> list[Any] | None:
    """Return the cells, or None if not all of them are on parameter servers."""
    step = array_operators.find_own_variable(optimizer.step)
    if getattr(getattr(step, "state_cell", None), "home", None) is None:
        return None
    cells = _find_cells(optimizer, model)
    is_away = cells is not None and all(c.home is not None for c in cells)
    return cells if is_away else None


@final
class _Change:
    """The update of an optimizer, as a function of lists of arrays.

    Args:
        optimizer: the optimizer.
        cells: its cells.
        structure: the structure of the parameters.
        kwargs: further arguments of the transformation.
    """

    def __init__(
        self, optimizer: Any, cells: list[Any], structure: Any, kwargs: dict[str, Any]
    ) -> None:
        self._tx = optimizer.tx
        self._cells = cells
        self._structure = structure
        self._slots: Any = jax.tree.structure(nnx.as_pure(optimizer.opt_state))
        self._kwargs = kwargs

    def compute(self, old: Sequence[Any], arrays: Sequence[Any]) -> tuple[Any, Any]:
        """Return what is added to the parameters, and the new slots."""
        count = len(arrays)
        return self._tx.update(  # type: ignore[no-any-return]
            self._structure.unflatten(arrays),
            self._slots.unflatten(old[count:-1]),
            self._structure.unflatten(old[:count]),
            **self._kwargs,
        )

    def __call__(self, old: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        """Return the new values of all cells, given the old ones and gradients."""
        changes, found = self.compute(old, arrays)
        params = self._structure.unflatten(old[: len(arrays)])
        new = optax.apply_updates(params, changes)
        every = [*jax.tree.leaves(new), *jax.tree.leaves(found), old[-1] + 1]
        return [x.astype(c.dtype) for x, c in zip(every, self._cells, strict=True)]


def _update_parts(
    optimizer: Any,
    model: Any,
    unflatten: Callable[[Sequence[Any]], Any],
    kwargs: dict[str, Any],
    leaves: Sequence[Any],
) -> bool:
    """Let each replica update its own parts of split variables, if possible.

    Args:
        optimizer: the optimizer.
        model: the model.
        unflatten: makes gradients of their leaves.
        kwargs: further arguments of the transformation.
        leaves: the gradients of each replica.

    Returns:
        Whether it was possible, and the variables are updated.
    """
    if not isinstance(frames.frame(), replica_frame.LocalFrame):
        return False
    cells = _find_cells(optimizer, model)
    if cells is None or all(c.split is None for c in cells):
        return False
    # The gradients of an optimizer's parameters may be some of those that it is given.
    order, structure = jax.tree.flatten(
        _params(optimizer, unflatten([np.asarray(i) for i in range(len(leaves))]))
    )
    change, count = _Change(optimizer, cells, structure, kwargs), len(order)
    given = [leaves[int(i)] for i in order]

    def compute(inputs: list[Any]) -> list[Any]:
        return change(inputs[:-count], inputs[-count:])

    return sharded_update.update(compute, cells, given, ())


def _update_on_servers(
    optimizer: Any, model: Any, grads: Any, kwargs: dict[str, Any]
) -> Any:
    """Let servers update a model and the slots of its optimizer.

    A worker's own update would be computed from values that other workers have changed
    since they were read.

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
    cells = _find_cells_on_servers(optimizer, model)
    if cells is None:
        return None
    given: list[Any]
    given, structure = jax.tree.flatten(_params(optimizer, grads))
    change, count = _Change(optimizer, cells, structure, kwargs), len(given)
    shapes = [jax.ShapeDtypeStruct(g.shape, g.dtype) for g in given]
    plan = cells[0].home.group.plan_update(
        optimizer, change, cells, shapes, range(count), tuple(kwargs)
    )
    if plan is None:
        return None
    # Computed only if somebody uses it.
    result, _ = change.compute([frames.frame().whole(c) for c in cells], given)
    plan(given)
    return result
