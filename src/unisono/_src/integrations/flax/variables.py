"""Flax NNX variables that are kept in variables of a strategy.

An `nnx.Variable` has one place for its value, `_raw_value`. A variable made in a scope
becomes an object of a subclass in which that place is a property: it reads and writes a
`unisono.Variable` through the current state frame. Copies that NNX makes of it, for
`nnx.split` or inside `nnx.grad`, have a plain value there, and behave as in NNX.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, final

import jax
from flax import nnx

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.integrations import kept_variables
from unisono._src.state import assignment, frames, variables
from unisono._src.values import jax_traces

_place: Any = vars(nnx.Variable)["_raw_value"]
# What depends on the examples of a batch, or is taken out again, is not state.
TRANSIENT = (nnx.Intermediate, nnx.Cache)


@final
class _Kept:
    """What a variable made in a scope does differently; for subclasses made below."""

    __slots__ = ()

    @property
    def _unisono_variable(self) -> variables.Variable:
        held = _place.__get__(self)
        if not isinstance(held, variables.Variable):
            raise AttributeError("This copy of a variable belongs to no strategy.")
        return held

    @property
    def _raw_value(self) -> Any:
        held = _place.__get__(self)
        return assignment.read(held) if isinstance(held, variables.Variable) else held

    @_raw_value.setter
    def _raw_value(self, value: Any) -> None:
        held = _held(self)
        late = _late.get(threading.get_ident())
        if held is None or isinstance(value, variables.Variable):
            _place.__set__(self, value)
        elif late is not None:
            late.append((held, value))
        else:
            kept_variables.assign(held, assignment.REPLACE, value)

    # NNX refuses to change a variable inside a program that did not make it. Here the
    # state frame takes care that nothing leaks.

    @property
    def _can_update(self) -> bool:
        return _held(self) is not None or super()._can_update  # type: ignore[misc]

    def _check_can_update(self) -> None:
        if _held(self) is None:
            super()._check_can_update()  # type: ignore[misc]


def _held(variable: Any) -> variables.Variable | None:
    try:
        held = _place.__get__(variable)
    except AttributeError:
        return None  # It is being made.
    return held if isinstance(held, variables.Variable) else None


# Values that a thread has still to assign, while NNX puts objects together again.
_late: dict[int, list[tuple[variables.Variable, Any]]] = {}


def rebuilding(original: Callable[..., Any]) -> Callable[..., Any]:
    """`graphlib.unflatten`, after which variables are assigned.

    It takes objects apart and fills them again. Replicas that take turns change places
    in an assignment, and the next one would find them empty.
    """

    @functools.wraps(original)
    def unflatten(*args: Any, **kwargs: Any) -> Any:
        port, thread = ambient.current().port, threading.get_ident()
        if port is None or port.is_spmd or port.replicas == 1 or thread in _late:
            return original(*args, **kwargs)
        waiting = _late.setdefault(thread, [])
        try:
            made = original(*args, **kwargs)
        finally:
            del _late[thread]
        for held, value in waiting:
            kept_variables.assign(held, assignment.REPLACE, value)
        return made

    return unflatten


@functools.cache
def _kept_class(kind: type) -> type:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind)(kind.__name__, (_Kept, kind), names)


def creating(original: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a variable class, which adopts what it has made."""

    @functools.wraps(original)
    def create(kind: type, *args: Any, **kwargs: Any) -> Any:
        if ambient.current().strategy is None or frames.frame().is_compiled:
            return original(kind, *args, **kwargs)
        made = original(kind, *args, **kwargs)
        _adopt(made)
        return made

    return create


def tracing(original: Callable[[], Any]) -> Callable[[], Any]:
    """`current_jax_trace`, to which programs of a strategy look like no program.

    NNX refuses to change what another trace has made, because the change would leak
    out. Those of variables made in a scope do not: the state frame takes them out in
    order. Inside gradients and other transformations the rule of NNX stands.
    """

    @functools.wraps(original)
    def current() -> Any:
        if not any(jax_traces.current() is t for t in frames.frame().traces):
            return original()
        with jax_traces.computing():
            return original()

    return current


def _adopt(made: Any) -> None:
    if isinstance(made, TRANSIENT) or made.hijax or made.ref:
        return
    value = made.get_raw_value()
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return
    kept = kept_variables.make(value, name=type(made).__name__, **_options(made, value))
    kind: Any = type(made)
    object.__setattr__(made, "__class__", _kept_class(kind))
    _place.__set__(made, kept)


def _options(made: Any, value: Any) -> dict[str, Any]:
    if isinstance(made, nnx.metrics.MetricState):
        return {
            "trainable": False,
            "synchronization": VariableSynchronization.ON_READ,
            "aggregation": VariableAggregation.SUM,
        }
    if isinstance(made, nnx.Param):
        return {"trainable": True}
    aggregation = kept_variables.aggregation_of_state(value.dtype)
    return {"trainable": False, "aggregation": aggregation}
