"""What of Keras objects a checkpoint saves, and the names it has there.

Keras numbers its objects per process: a layer is ``dense`` here and ``dense_7`` there.
So names come from the structure: an object is called by the attribute that holds it, a
layer in a list of layers by its class, and by its own name if the program chose one.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Iterable
from typing import Any, final

import jax.numpy as jnp
import keras
from keras.src import backend
from keras.src.models import functional
from keras.src.optimizers import base_optimizer
from keras.src.trainers import compile_utils
from keras.src.utils import naming

from unisono._src.foundation import library_hooks
from unisono._src.saving.checkpoint import restore_values
from unisono._src.state import assignment
from unisono._src.values import jax_traces

_WAITING = "_unisono_waiting"
# Keras' own lists of what attributes hold as well, and what `compile` makes.
_INTERNAL = frozenset(
    {
        "_layers", "_metrics", "_seed_generators", "_trainable_variables",
        "_non_trainable_variables", "_variables", "_functional", "_operations",
        "_operations_by_depth", "_nodes", "_nodes_by_depth", "_inbound_nodes",
        "_outbound_nodes", "_loss_tracker", "_compile_metrics", "_compile_loss",
        "_tracker", "_jax_state",
    }
)  # fmt: skip
_AUTOMATIC = re.compile(r"variable(_\d+)?")
_NODES = (
    keras.Layer,
    base_optimizer.BaseOptimizer,
    keras.metrics.Metric,
    keras.random.SeedGenerator,
)
_KINDS = (*_NODES, backend.Variable)


@final
class _Variable(library_hooks.Held):
    """A Keras variable, made in a scope or not."""

    @property
    def name(self) -> str:
        return self.owner.path

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.owner.shape)

    @property
    def dtype(self) -> Any:
        return jnp.dtype(self.owner._dtype)

    def read(self, is_detached: bool) -> Any:
        kept = self.owner.__dict__.get("_kept")
        if kept is not None:
            return assignment.read(kept)
        value = self.owner._value
        if value is None:
            raise ValueError(
                f"The Keras variable {self.name!r} has no value: it is not initialized "
                "yet, or a running step has it. Save before or after `fit`, or pass "
                "the model whose `fit` runs as well."
            )
        return jnp.copy(value) if is_detached else value

    def assign(self, value: Any) -> None:
        own = self.owner.__dict__
        if own.get("_kept") is not None:
            restore_values.assign(own["_kept"], value)
        elif own.get("_value") is None:
            # Keras will ask for the first value when it leaves a stateless scope.
            self.owner._initializer = lambda shape, dtype=None: jnp.asarray(value)
        else:
            with jax_traces.computing():
                self.owner._direct_assign(jnp.asarray(value, self.dtype))


_held: weakref.WeakValueDictionary[int, _Variable] = weakref.WeakValueDictionary()


def _hold(variable: Any) -> _Variable:
    found = _held.get(id(variable))
    if found is None:
        found = _held[id(variable)] = _Variable(variable)
    return found


# Names.


@final
class _Names:
    """Names that are given once each."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def add(self, name: str, obj: Any) -> None:
        """Add under the name, or under the name with the first number that is free."""
        chosen, number = name, 0
        while chosen in self.found:
            number += 1
            chosen = f"{name}_{number}"
        self.found[chosen] = obj


def _own_name(obj: Any) -> str:
    """The name that the program chose for an object, else that of its class."""
    kind = naming.to_snake_case(type(obj).__name__)
    name = getattr(obj, "name", None) or kind
    return kind if re.fullmatch(re.escape(kind) + r"(_\d+)?", name) else name


def named(objects: Iterable[Any]) -> dict[str, Any]:
    names = _Names()
    for obj in objects:
        names.add(_own_name(obj), obj)
    return names.found


def _holds(value: Any) -> bool:
    """Whether a value is a Keras object with state, or a container of some."""
    if isinstance(value, dict):
        return any(map(_holds, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds, value))
    return isinstance(value, _KINDS)


def _add_variables(names: _Names, obj: Any, variables: Iterable[Any]) -> None:
    """Variables by the attribute that holds them, else by their own name."""
    attributes = {
        id(value): name.lstrip("_")
        for name, value in vars(obj).items()
        if isinstance(value, backend.Variable)
    }
    for variable in variables:
        chosen = "variable" if _AUTOMATIC.fullmatch(variable.name) else variable.name
        names.add(attributes.get(id(variable), chosen), variable)


def _add_attributes(names: _Names, obj: Any) -> None:
    """What else attributes hold."""
    for name, value in vars(obj).items():
        if name in _INTERNAL or isinstance(value, backend.Variable):
            continue
        if _holds(value):
            names.add(name.lstrip("_"), value)


# Kinds of objects.


def _of_layer(layer: Any) -> dict[str, Any]:
    names = _Names()
    own = [*layer._trainable_variables, *layer._non_trainable_variables]
    _add_variables(names, layer, own)
    _add_attributes(names, layer)
    if _own_layers(layer):
        branch = library_hooks.Branch(layer, lambda: named(_own_layers(layer)))
        names.add("layers", branch)
    return names.found


def _own_layers(layer: Any) -> list[Any]:
    """Layers that have their place in a list of the layer."""
    if isinstance(layer, keras.Sequential | functional.Functional):
        return [x for x in layer.layers if not isinstance(x, keras.layers.InputLayer)]
    held = [value for name, value in vars(layer).items() if name not in _INTERNAL]
    reached = {id(x) for x in _flat(held)}
    return [x for x in layer._layers if id(x) not in reached]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [x for item in value for x in _flat(item)]
    return [value] if isinstance(value, keras.Layer) else []


def _of_optimizer(optimizer: Any) -> dict[str, Any]:
    names = _Names()
    reached: set[int] = set()
    for name, value in vars(optimizer).items():
        if name in _INTERNAL:
            continue
        if isinstance(value, backend.Variable | base_optimizer.BaseOptimizer):
            names.add(name.lstrip("_"), value)
            reached |= {id(value)}
        elif _holds(value):
            reached |= set(map(id, _slots(value).values()))
            slots = library_hooks.Branch(optimizer, functools.partial(_slots, value))
            names.add(name.lstrip("_"), slots)
    for variable in optimizer._variables:
        if id(variable) not in reached:
            names.add("variable", variable)
    return names.found


def _slots(value: Any) -> dict[str, Any]:
    """Slot variables by the number of the variable they belong to."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {str(k): v for k, v in items if isinstance(v, _KINDS)}


def _of_metric(metric: Any) -> dict[str, Any]:
    if isinstance(metric, compile_utils.CompileMetrics):
        return named(metric.metrics)
    names = _Names()
    _add_variables(names, metric, metric._variables)
    _add_attributes(names, metric)
    return names.found


@final
class _Keeper(library_hooks.Keeper):
    """Knows layers, models, optimizers, metrics, seed generators and variables."""

    def __getitem__(self, obj: Any) -> library_hooks.Held | dict[str, Any] | None:
        if isinstance(obj, backend.Variable):
            return _hold(obj)
        if isinstance(obj, keras.Model):
            _sync(obj)
        if isinstance(obj, keras.Layer):
            return _of_layer(obj)
        if isinstance(obj, base_optimizer.BaseOptimizer):
            return _of_optimizer(obj)
        if isinstance(obj, keras.metrics.Metric):
            return _of_metric(obj)
        if isinstance(obj, keras.random.SeedGenerator):
            return {"state": obj.state}
        return None

    def prepare(self, obj: Any) -> None:
        """Make the optimizer's variables, once there is something to optimize."""
        if not isinstance(obj, keras.Model) or not obj.built:
            return
        optimizer = getattr(obj, "optimizer", None)
        if optimizer is not None and not optimizer.built and obj.trainable_variables:
            strategy = obj.__dict__.get("distribute_strategy")
            if strategy is None:
                optimizer.build(obj.trainable_variables)
                return
            with strategy.scope():
                optimizer.build(obj.trainable_variables)

    def watch(self, obj: Any, then: Callable[[], None]) -> None:
        """Call `then` when the object has been built or compiled."""
        waiting = obj.__dict__.get(_WAITING)
        if waiting is None:
            waiting = obj.__dict__[_WAITING] = _Waiting(obj)
        waiting.calls.append(then)


KEEPER = _Keeper()


def _sync(model: Any) -> None:
    """Give the variables of a model whose `fit` runs their values back."""
    if getattr(model, "_jax_state_synced", True):
        return
    strategy = model.__dict__.get("distribute_strategy")
    if strategy is None:
        model.jax_state_sync()
        return
    with strategy.scope():
        model.jax_state_sync()


@final
class _Waiting:
    """An object that tells, once, that it has been built or compiled.

    Args:
        obj: the object, whose methods are replaced until then.

    Attributes:
        calls: whom to tell.
    """

    def __init__(self, obj: Any) -> None:
        self.calls: list[Callable[[], None]] = []
        self._own = obj.__dict__
        self._before: dict[str, Any] = {}
        for name in ("build", "compile"):
            method = getattr(obj, name, None)
            if method is not None:
                self._before[name] = self._own.get(name)
                self._own[name] = self._telling(method)

    def _telling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        # Keras asks methods for their signature, and whether they are its default.
        @functools.wraps(method)
        def telling(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if self._own.get(_WAITING) is self:
                self._end()
            return result

        return telling

    def _end(self) -> None:
        del self._own[_WAITING]
        for name, before in self._before.items():
            if before is None:
                del self._own[name]
            else:
                self._own[name] = before
        with jax_traces.computing():
            for then in self.calls:
                then()
