"""The behaviour of NNX optimizers and metrics in replica context."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx

from unisono._src.execution import contexts, function
from unisono._src.foundation import ambient, errors
from unisono._src.foundation.options import ReduceOp
from unisono._src.integrations.flax import server_updates
from unisono._src.strategies.base import Strategy
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
            found = server_updates.update(self, model, grads, kwargs)
            return original(self, model, grads, **kwargs) if found is None else found
        leaves, structure = jax.tree.flatten(grads)
        merge = functools.partial(
            _reduce_and_update, self, original, model, structure, kwargs
        )
        # As a flat list: `merge_call` regroups what it is given, and NNX states are
        # structures that only JAX knows.
        return contexts.merge_replicas(merge, args=(leaves,))

    return update


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
    everywhere = array_operators.find_own_variable(optimizer.step)
    # The count of steps is mirrored: gradients go wherever its copies are.
    pairs = [(g, everywhere) for g in leaves]
    summed = strategy.extended.batch_reduce_to(ReduceOp.SUM, pairs)
    arrays = [getattr(g, "whole", g) for g in summed]
    found = server_updates.update(optimizer, model, structure.unflatten(arrays), kwargs)
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
