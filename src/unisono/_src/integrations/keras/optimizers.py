"""Keras optimizers in replica context: they sum gradients and update every copy."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import jax
import jax.numpy as jnp
import keras

from unisono._src.execution import contexts, function, sharded_update
from unisono._src.foundation import ambient
from unisono._src.foundation.options import ReduceOp
from unisono._src.integrations.keras import internals, strategy_distribution
from unisono._src.integrations.keras.internals import KerasOptimizer, KerasVariable
from unisono._src.ops import control_flow
from unisono._src.state import remote_state, sharded_variable, variables
from unisono._src.strategies.base import Strategy
from unisono._src.training import gradient_taps
from unisono._src.values import array_operators, distributed
from unisono._src.values.indexed_slices import IndexedSlices

# The gradient of an array, or of some of its rows.
Gradient = jax.Array | IndexedSlices
# The compiled updates of each optimizer. Weak keys, so that they go with the optimizer.
_updates: weakref.WeakKeyDictionary[
    KerasOptimizer, dict[object, function.Function[..., None]]
] = weakref.WeakKeyDictionary()


@final
class OwnGradients(tuple[Gradient | None, ...]):
    """Gradients that each replica applies as they are; they must be equal on all."""


def wrap_apply(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `Optimizer.apply` that first sums the gradients of the replicas."""

    @functools.wraps(original)
    def apply(
        self: KerasOptimizer,
        grads: Sequence[Gradient | None],
        trainable_variables: Sequence[KerasVariable] | None = None,
    ) -> None:
        frame = ambient.current()
        is_replica = frame.strategy is not None and frame.mode == ambient.REPLICA
        is_own = isinstance(grads, OwnGradients)
        if is_replica and is_own and hasattr(self, "inner_optimizer"):
            raise NotImplementedError(
                "A LossScaleOptimizer sums the gradients of the replicas itself, "
                "because it must see their sum. Leave the sum of your own out, and "
                "experimental_aggregate_gradients=False: "
                "optimizer.apply_gradients(zip(gradients, variables))"
            )
        _check_whole(trainable_variables or ())
        _note_gradients(self, grads, trainable_variables)
        if not is_replica or is_own or len(grads) == 0:
            with strategy_distribution.updating():
                original(self, grads, trainable_variables)
            return
        wanted = _find_variables(self, trainable_variables)
        update = functools.partial(_reduce_and_update, self, original, wanted)
        # All replicas meet here, and the update runs once, for all copies.
        contexts.merge_replicas(update, args=(list(grads),))

    return apply


def _check_whole(wanted: Sequence[object]) -> None:
    """Raise if a variable is a program's own one in parts, which Keras cannot update.

    Raises:
        NotImplementedError: one is.
    """
    for v in wanted:
        if isinstance(v, sharded_variable.ShardedVariable):
            raise NotImplementedError(
                f"An optimizer of Keras cannot update the variable {v.name!r}, which "
                "was made by unisono.Variable and is in parts on parameter servers. "
                "Use unisono.optimizers.Optimizer(optax.sgd(0.1), variables), or keep "
                "the variable whole with variable_partitioner=None."
            )


def _note_gradients(
    optimizer: KerasOptimizer,
    grads: Sequence[Gradient | None],
    wanted: Sequence[KerasVariable] | None,
) -> None:
    """Write the gradients where they are compared, if somebody collects them."""
    if wanted is None:
        wanted = internals.optimized_variables(optimizer) if optimizer.built else []
    if len(wanted) != len(grads):
        return  # The optimizer says what is wrong.
    find = array_operators.find_own_variable
    slots = map(find, optimizer.variables if optimizer.built else ())
    gradient_taps.note(grads, [find(v) for v in wanted], slots)


def wrap_cond(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `keras.ops.cond` whose branches may assign variables.

    A `LossScaleOptimizer` updates variables in one. JAX's would not let them out.
    """

    @functools.wraps(original)
    def cond(
        pred: Any, true_fn: Callable[[], object], false_fn: Callable[[], object]
    ) -> object:
        is_keras = isinstance(pred, keras.KerasTensor) or internals.in_stateless_scope()
        return (original if is_keras else control_flow.cond)(pred, true_fn, false_fn)

    return cond


def _find_variables(
    optimizer: KerasOptimizer, given: Sequence[KerasVariable] | None
) -> list[KerasVariable]:
    """Return the variables that gradients belong to: those given, or those known."""
    if given is not None:
        return list(given)
    if not optimizer.built:
        raise ValueError(
            "Pass the variables with the gradients, or call optimizer.build(variables) "
            "first: the optimizer does not know what to update."
        )
    return internals.optimized_variables(optimizer)


def _reduce_and_update(
    optimizer: KerasOptimizer,
    original: Callable[..., None],
    wanted: list[KerasVariable],
    strategy: Strategy,
    all_grads: Sequence[Gradient | None],
) -> None:
    """Sum the gradients and update all copies alike, in cross-replica context."""
    if not optimizer.built:
        optimizer.build(wanted)
    # A variable that the loss does not depend on has None for its gradient, which
    # cannot be summed; `given` says to which variables the others belong.
    given = [i for i, g in enumerate(all_grads) if g is not None]
    grads = [_fill_missing(all_grads[i]) for i in given]
    if _update_parts(optimizer, wanted, given, grads):
        return
    pairs = [
        (g, array_operators.find_own_variable(wanted[i]))
        for g, i in zip(grads, given, strict=True)
    ]
    summed = strategy.extended.batch_reduce_to(ReduceOp.SUM, pairs)
    arrays = [getattr(g, "whole", g) for g in summed]
    if _update_on_servers(optimizer, [wanted[i] for i in given], arrays):
        return
    _compile_update(optimizer, original, wanted, given)(arrays)


def _fill_missing(gradient: Any) -> Any:
    """Return a gradient with zeros for the replicas whose loss has no part in it.

    A replica without examples looks up no rows of a table, for example.
    """
    if not isinstance(gradient, distributed.PerReplica) or gradient.is_stacked:
        return gradient
    if gradient.local is not None or all(x is not None for x in gradient.values):
        return gradient
    found = next(x for x in gradient.values if x is not None)
    zeros: Gradient
    if isinstance(found, IndexedSlices):
        rows, places = jnp.zeros_like(found.values), jnp.zeros_like(found.indices)
        zeros = IndexedSlices(rows, places, found.dense_shape)
    else:
        zeros = jnp.zeros_like(found)
    parts = [zeros if x is None else x for x in gradient.values]
    return distributed.PerReplica(parts, gradient.topology)


def _update_on_servers(
    optimizer: Any, wanted: Sequence[Any], grads: Sequence[Any]
) -> bool:
    """Let servers update the variables and slots of an optimizer.

    A worker's own update would be computed from values that other workers have changed
    since they were read. So the worker sends gradients, and each server computes the
    new values of its variables and slots from those that it has then.

    Args:
        optimizer: the optimizer, which is built.
        wanted: the variables that have a gradient.
        grads: their gradients.

    Returns:
        False if nothing was done: the variables are not on servers, or the update of
        one server needs variables of another one.
    """
    every, slots = internals.optimized_variables(optimizer), optimizer.variables
    first = array_operators.find_own_variable(every[0]) if every else None
    if not isinstance(first, variables.Variable) or first.state_cell.home is None:
        return False
    own = [array_operators.find_own_variable(v) for v in (*every, *slots)]
    if not all(isinstance(v, variables.Variable) and v.state_cell.home for v in own):
        return False
    cells = [v.state_cell for v in own]
    dense = [g.to_dense() if isinstance(g, IndexedSlices) else g for g in grads]
    # By identity: `==` of Keras variables compares their values.
    order = {id(v): i for i, v in enumerate(every)}
    places = [order[id(v)] for v in wanted]
    count = len(every)

    def change(old: list[Any], given: list[Any]) -> list[Any]:
        by_place = dict(zip(places, given, strict=True))
        weights, found = optimizer.stateless_apply(
            old[count:], [by_place.get(i) for i in range(count)], old[:count]
        )
        new = zip((*weights, *found), cells, strict=True)
        return [x.astype(c.dtype) for x, c in new]

    shapes = [jax.ShapeDtypeStruct(g.shape, g.dtype) for g in dense]
    group = remote_state.home_of(cells[0]).group
    plan = group.plan_update(optimizer, change, cells, shapes, places)
    if plan is None:
        return False
    plan(dense)
    return True


def _update_parts(
    optimizer: KerasOptimizer,
    wanted: list[KerasVariable],
    given: list[int],
    grads: Sequence[Gradient | None],
) -> bool:
    """Update variables that are split over the replicas, each part on its device.

    Returns:
        False if nothing was done: some gradients are missing, or no variable is split.
    """
    every, slots = internals.optimized_variables(optimizer), optimizer.variables
    own = [array_operators.find_own_variable(v) for v in (*every, *slots)]
    by_id = {id(wanted[i]): g for i, g in zip(given, grads, strict=True)}
    is_complete = {id(v) for v in every} == by_id.keys()
    if not is_complete or not all(isinstance(v, variables.Variable) for v in own):
        return False
    count = len(every)

    def change(inputs: list[jax.Array]) -> list[jax.Array]:
        # Optimizers compute with the parts of variables here, but ask the variables
        # for their shapes.
        with internals.pretend_shapes((*every, *slots), inputs):
            # The weights come first, then the slots, and at the end the gradients.
            weights, found = optimizer.stateless_apply(
                inputs[count:-count], inputs[-count:], inputs[:count]
            )
        return [*weights, *found]

    cells = [v.state_cell for v in own]
    return sharded_update.update(change, cells, [by_id[id(v)] for v in every], ())


def _compile_update(
    optimizer: KerasOptimizer,
    original: Callable[..., None],
    wanted: list[KerasVariable],
    given: list[int],
) -> Callable[[list[Gradient]], None]:
    """Return the compiled update of some variables.

    Inside a program that is being traced, it becomes part of that program.
    """
    known = _updates.setdefault(optimizer, {})
    key = (tuple(map(id, wanted)), tuple(given))
    if key not in known:
        # A strong reference would keep the optimizer, and so the entry, for ever.
        alive = weakref.ref(optimizer)

        def update(arrays: list[Gradient]) -> None:
            by_index = dict(zip(given, arrays, strict=True))
            grads = [by_index.get(i) for i in range(len(wanted))]
            used = alive()
            assert used is not None
            _apply(used, original, grads, wanted)

        known[key] = function.Function(update)
    return known[key]


def _apply(
    optimizer: KerasOptimizer,
    original: Callable[..., None],
    grads: list[Gradient | None],
    wanted: list[KerasVariable],
) -> None:
    """Apply summed gradients, with the optimizer's own code."""
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        original(optimizer, grads, wanted)
        return
    # It decides inside `jax.lax.cond` whether to update. A variable that is assigned
    # there would leak a traced value, so the values go in and come out instead.
    every, own = internals.optimized_variables(optimizer), optimizer.variables
    by_id = {id(v): g for v, g in zip(wanted, grads, strict=True)}
    updated = optimizer.stateless_apply(
        [v.value for v in own],
        [by_id.get(id(v)) for v in every],
        [v.value for v in every],
    )
    for kept, values in zip((every, own), updated, strict=True):
        for variable, value in zip(kept, values, strict=True):
            variable.assign(value)


# Where slots are kept, if parameter servers keep them.


def wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__`, or `build`, whose numbers are kept on every server.

    Every server needs the count of steps and the learning rate. All copies change
    alike, because every update goes to all servers.
    """

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        with _place_at(_find_shared_home()):
            original(self, *args, **kwargs)

    return init


def wrap_add_variable(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `add_variable` whose numbers are kept on every server."""

    @functools.wraps(original)
    def add_variable(self: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
        # An array goes to one server; only a number that nobody has placed is shared.
        is_free = ambient.current().colocate is None and len(shape) == 0
        home = _find_shared_home() if is_free else None
        with _place_at(home):
            return original(self, shape, *args, **kwargs)

    return add_variable


def wrap_add_from_reference(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `add_variable_from_reference` that keeps a slot beside its variable."""

    @functools.wraps(original)
    def add(self: Any, reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
        own = array_operators.find_own_variable(reference_variable)
        home = getattr(getattr(own, "state_cell", None), "home", None)
        with _place_at(home):
            return original(self, reference_variable, *args, **kwargs)

    return add


def _place_at(home: remote_state.Home | None) -> AbstractContextManager[object]:
    """Return a block in which new variables go to `home`; None changes nothing."""
    return contextlib.nullcontext() if home is None else ambient.push(colocate=home)


def _find_shared_home() -> remote_state.Home | None:
    """Return the home of numbers that every server keeps; None without servers."""
    placement = ambient.current().placement
    group = None if placement is None else placement.servers
    if group is None:
        return None
    return remote_state.Home(group, "", tuple(range(group.count)))
