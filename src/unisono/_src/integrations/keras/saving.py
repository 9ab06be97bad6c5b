"""The state of Keras objects for checkpoints and exports, and its names there.

Keras numbers its objects per process: a layer is ``dense`` here and ``dense_7`` there.
So names come from the structure. An object has the name of the attribute that refers to
it; a layer in a list of layers has its own name if the program chose one, and else that
of its class.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.typing import ArrayLike

from unisono._src.execution import function
from unisono._src.foundation import library_hooks
from unisono._src.integrations import kept_variables
from unisono._src.integrations.keras import exporting, internals
from unisono._src.integrations.keras.internals import (
    KerasLayer,
    KerasMetric,
    KerasModel,
    KerasOptimizer,
    KerasVariable,
)
from unisono._src.saving.checkpoint import restore_values
from unisono._src.state import reading
from unisono._src.state.variables import Variable
from unisono._src.values import jax_traces

T = TypeVar("T")

# Under this name an object has the `_BuildWatch` that waits for it.
_WAITING = "_unisono_waiting"
# Keras' own attributes. They list objects that other attributes refer to as well, or
# hold what `compile` creates anew.
_INTERNAL = frozenset(
    {
        "_layers", "_metrics", "_seed_generators", "_trainable_variables",
        "_non_trainable_variables", "_variables", "_functional", "_operations",
        "_operations_by_depth", "_nodes", "_nodes_by_depth", "_inbound_nodes",
        "_outbound_nodes", "_loss_tracker", "_compile_metrics", "_compile_loss",
        "_tracker", "_jax_state",
    }
)  # fmt: skip
# The names that Keras gives to variables without one.
_AUTOMATIC = re.compile(r"variable(_\d+)?")
_NODES = (
    keras.Layer,
    internals.BaseOptimizer,
    keras.metrics.Metric,
    keras.random.SeedGenerator,
)
_KINDS = (*_NODES, keras.Variable)


@final
class _SavedKerasVariable(library_hooks.LibraryVariable):
    """A Keras variable as a checkpoint sees it, whether made in a scope or not."""

    @property
    def strategy_variable(self) -> Variable | None:
        return self.owner.__dict__.get("_kept")

    @property
    def name(self) -> str:
        return self.owner.path

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.owner.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return internals.stored_type(self.owner)

    def read(self, is_detached: bool) -> jax.Array:
        kept = self.strategy_variable
        if kept is not None:
            return reading.read(kept)
        value = internals.stored_value(self.owner)
        if value is None:
            raise ValueError(
                f"The Keras variable {self.name!r} has no value: it is not initialized "
                "yet, or a running step has it. Save before or after `fit`, or pass "
                "the model whose `fit` runs as well."
            )
        # The next step of Keras' own `fit` donates the array.
        return jnp.copy(value) if is_detached else value

    def assign(self, value: ArrayLike) -> None:
        own = self.owner.__dict__
        if own.get("_kept") is not None:
            restore_values.assign(own["_kept"], value)
        elif own.get("_value") is None:
            internals.set_first_value(self.owner, value)
        else:
            with jax_traces.compute_at_once():
                internals.store(self.owner, jnp.asarray(value, self.dtype))

    def lend(self) -> contextlib.AbstractContextManager[Variable]:
        return exporting.lend(self.owner)


# Names.


def _add(names: dict[str, T], name: str, obj: T) -> None:
    """Add an object under a name, or under the name with the first free number."""
    chosen, number = name, 0
    while chosen in names:
        number += 1
        chosen = f"{name}_{number}"
    names[chosen] = obj


def _own_name(obj: object) -> str:
    """Return the name that the program chose for an object, else that of its class."""
    kind = internals.to_snake_case(type(obj).__name__)
    name = getattr(obj, "name", None) or kind
    return kind if re.fullmatch(re.escape(kind) + r"(_\d+)?", name) else name


def name_objects(objects: Iterable[T]) -> dict[str, T]:
    """Return objects by names that are equal in every process."""
    names: dict[str, T] = {}
    for obj in objects:
        _add(names, _own_name(obj), obj)
    return names


def _has_state(value: object) -> bool:
    """Return whether a value is a Keras object with state, or a container of some."""
    if isinstance(value, dict):
        return any(map(_has_state, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_state, value))
    return isinstance(value, _KINDS)


def _add_variables(
    names: dict[str, object], obj: object, variables: Iterable[KerasVariable]
) -> None:
    """Add variables under the names of their attributes, else under their own names."""
    attributes = {
        id(value): name.lstrip("_")
        for name, value in vars(obj).items()
        if isinstance(value, keras.Variable)
    }
    for variable in variables:
        chosen = "variable" if _AUTOMATIC.fullmatch(variable.name) else variable.name
        _add(names, attributes.get(id(variable), chosen), variable)


def _add_attributes(names: dict[str, object], obj: object) -> None:
    """Add the objects with state, other than variables, that attributes refer to."""
    for name, value in vars(obj).items():
        if name in _INTERNAL or isinstance(value, keras.Variable):
            continue
        if _has_state(value):
            _add(names, name.lstrip("_"), value)


# Kinds of objects.


def _layer_children(layer: KerasLayer) -> dict[str, object]:
    names: dict[str, object] = {}
    _add_variables(names, layer, internals.own_variables(layer))
    _add_attributes(names, layer)
    if _own_layers(layer):
        branch = library_hooks.Branch(layer, lambda: name_objects(_own_layers(layer)))
        _add(names, "layers", branch)
    return names


def _own_layers(layer: KerasLayer) -> list[KerasLayer]:
    """Return the layers in a layer's own list that no attribute refers to."""
    if isinstance(layer, keras.Sequential | internals.Functional):
        return [x for x in layer.layers if not isinstance(x, keras.layers.InputLayer)]
    # Layers that an attribute holds have its name; only the others need one of ours.
    held = [value for name, value in vars(layer).items() if name not in _INTERNAL]
    reached = {id(x) for x in _flatten_layers(held)}
    return [x for x in internals.own_layers(layer) if id(x) not in reached]


def _flatten_layers(value: object) -> list[KerasLayer]:
    """Return the layers in a nested structure."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [x for item in value for x in _flatten_layers(item)]
    return [value] if isinstance(value, keras.Layer) else []


def _optimizer_children(optimizer: KerasOptimizer) -> dict[str, object]:
    names: dict[str, object] = {}
    reached: set[int] = set()
    for name, value in vars(optimizer).items():
        if name in _INTERNAL:
            continue
        if isinstance(value, keras.Variable | internals.BaseOptimizer):
            _add(names, name.lstrip("_"), value)
            reached |= {id(value)}
        elif _has_state(value):
            reached |= set(map(id, _slots(value).values()))
            slots = library_hooks.Branch(optimizer, functools.partial(_slots, value))
            _add(names, name.lstrip("_"), slots)
    for variable in internals.own_state(optimizer):
        if id(variable) not in reached:
            _add(names, "variable", variable)
    return names


def _slots(value: Sequence[object] | dict[Any, object]) -> dict[str, object]:
    """Return slot variables by the number of the variable that they belong to."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {str(k): v for k, v in items if isinstance(v, _KINDS)}


def _metric_children(metric: KerasMetric) -> dict[str, object]:
    if isinstance(metric, internals.CompileMetrics):
        return name_objects(metric.metrics)
    names: dict[str, object] = {}
    _add_variables(names, metric, internals.own_state(metric))
    _add_attributes(names, metric)
    return names


@final
class _KerasStateFinder(library_hooks.StateFinder):
    """Finds the state of layers, models, optimizers, metrics, generators, variables."""

    def __getitem__(
        self, obj: object
    ) -> library_hooks.LibraryVariable | dict[str, object] | None:
        if isinstance(obj, keras.Variable):
            return kept_variables.hold(_SavedKerasVariable, obj)
        if isinstance(obj, keras.Model):
            _sync(obj)
        if isinstance(obj, keras.Layer):
            return _layer_children(obj)
        if isinstance(obj, internals.BaseOptimizer):
            return _optimizer_children(obj)
        if isinstance(obj, keras.metrics.Metric):
            return _metric_children(obj)
        if isinstance(obj, keras.random.SeedGenerator):
            return {"state": obj.state}
        return None

    def make_forward(self, obj: object) -> function.Function[..., object] | None:
        """Return the function of a model that predicts."""
        if not isinstance(obj, keras.Model):
            return None
        return exporting.make_forward(obj)

    def prepare(self, obj: object) -> None:
        """Create the optimizer's variables, if the model has variables to optimize."""
        if not isinstance(obj, keras.Model) or not obj.built:
            return
        optimizer = getattr(obj, "optimizer", None)
        if optimizer is not None and not optimizer.built and obj.trainable_variables:
            with _enter_scope(obj):
                optimizer.build(obj.trainable_variables)

    def watch(self, obj: object, then: Callable[[], None]) -> None:
        """Call `then` once, after the object has been built or compiled."""
        waiting = obj.__dict__.get(_WAITING)
        if waiting is None:
            waiting = obj.__dict__[_WAITING] = _BuildWatch(obj)
        waiting.calls.append(then)


STATE_FINDER = _KerasStateFinder()


def _sync(model: KerasModel) -> None:
    """Let a running `fit` store the values of its latest step in the variables."""
    if internals.has_weights(model):
        return
    with _enter_scope(model):
        model.jax_state_sync()


def _enter_scope(model: KerasModel) -> contextlib.AbstractContextManager[object]:
    """Return the scope of a model's strategy; a block without one if it has none."""
    strategy = model.__dict__.get("distribute_strategy")
    return contextlib.nullcontext() if strategy is None else strategy.scope()


@final
class _BuildWatch:
    """Calls functions once, after an object has been built or compiled.

    Args:
        obj: the object. Its methods `build` and `compile` are replaced until then.

    Attributes:
        calls: the functions.
    """

    def __init__(self, obj: object) -> None:
        self.calls: list[Callable[[], None]] = []
        # Its dict, not by `setattr`: Keras' objects track what is assigned to them.
        self._own = obj.__dict__
        self._before: dict[str, object] = {}
        for name in ("build", "compile"):
            method = getattr(obj, name, None)
            if method is not None:
                self._before[name] = self._own.get(name)
                self._own[name] = self._wrap(method)

    def _wrap(self, method: Callable[..., object]) -> Callable[..., object]:
        """Return a method that calls the functions after the original."""

        # Keras inspects the signature of `build`, and whether it is the default one.
        @functools.wraps(method)
        def call(*args: object, **kwargs: object) -> object:
            result = method(*args, **kwargs)
            # Only once, although one of the two methods may call the other.
            if self._own.get(_WAITING) is self:
                self._finish()
            return result

        return call

    def _finish(self) -> None:
        """Restore the methods of the object and call the functions."""
        del self._own[_WAITING]
        for name, before in self._before.items():
            if before is None:
                del self._own[name]
            else:
                self._own[name] = before
        # A model may be built while a program is traced; restored values must not
        # belong to the trace.
        with jax_traces.compute_at_once():
            for then in self.calls:
                then()
