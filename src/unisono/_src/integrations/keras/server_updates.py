"""Keras optimizers whose variables are on parameter servers: servers compute updates.

A worker's own update would be computed from values that other workers have changed
since they were read. So the worker sends gradients, and each server computes the new
values of its variables and slots from those that it has then.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax

from unisono._src.coordinator import server_group
from unisono._src.execution import server_update
from unisono._src.foundation import ambient
from unisono._src.integrations.keras import internals
from unisono._src.state import servers, variables
from unisono._src.training import server_slots
from unisono._src.values import array_operators
from unisono._src.values.indexed_slices import IndexedSlices

# The parts of the updates of each optimizer, by the variables that have a gradient and
# its shapes; None if servers cannot compute it.
_parts: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


# Where slots are kept.


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


def _place_at(home: servers.Home | None) -> AbstractContextManager[object]:
    """Return a block in which new variables go to `home`; None changes nothing."""
    return contextlib.nullcontext() if home is None else ambient.push(colocate=home)


def _find_shared_home() -> servers.Home | None:
    """Return the home of numbers that every server keeps; None without servers."""
    placement = ambient.current().placement
    group = None if placement is None else placement.servers
    if not isinstance(group, server_group.Servers):
        return None
    return servers.Home(group, "", tuple(range(group.count)))


# Updates.


def update(optimizer: Any, wanted: Sequence[Any], grads: Sequence[Any]) -> bool:
    """Let servers update the variables and slots of an optimizer.

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
    parts = _find_parts(optimizer, cells, places, dense)
    if parts is None:
        return False
    server_slots.apply_parts(parts, cells, dense)
    return True


def _find_parts(
    optimizer: Any, cells: Sequence[Any], places: Sequence[int], grads: Sequence[Any]
) -> Any:
    """Return the servers' parts of an update; None if it cannot be cut."""
    known = _parts.setdefault(optimizer, {})
    shapes = tuple(jax.ShapeDtypeStruct(g.shape, g.dtype) for g in grads)
    key = (tuple(places), tuple((s.shape, s.dtype) for s in shapes))
    if key not in known:
        count = len(internals.optimized_variables(optimizer))

        def change(old: list[Any], given: list[Any]) -> list[Any]:
            by_place = dict(zip(places, given, strict=True))
            weights, found = optimizer.stateless_apply(
                old[count:], [by_place.get(i) for i in range(count)], old[:count]
            )
            new = zip((*weights, *found), cells, strict=True)
            return [x.astype(c.dtype) for x, c in new]

        try:
            # In no frame and no tape: the programs are for any later call. Outside of
            # the strategy, where Keras would sum the gradients once more.
            with ambient.push(state=None, tape=None, strategy=None):
                known[key] = server_slots.cut(change, cells, shapes, places)
        except server_update.CannotBeCutError as error:
            known[key] = None
            group = cells[0].home.group
            assert isinstance(group, server_group.Servers)
            group.warn_of_lost_updates(type(optimizer).__name__, error)
    return known[key]
