"""Calls of converted code: the function is converted as well, if it is the user's."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike

from unisono._src.autograph import carried, conversion, loops
from unisono._src.execution import (
    conversion as execution_conversion,
    function,
    host_inputs,
)
from unisono._src.ops import making, tensors
from unisono._src.strategies import base

# The functions that these libraries are given become part of the program.
_CALLERS = {"unisono", "jax"}
_RANGE = inspect.unwrap(making.range)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def call(fn: Any, /, *args: object, **kwargs: object) -> Any:
    """Returns the result of a call, of a converted function if it is the user's."""
    chosen = _find_overload(fn)
    if chosen is not None and not kwargs and any(map(carried.is_unknown, args)):
        return chosen(*args)
    module = _module_of(fn)
    if module in _CALLERS:
        _check_run(fn)
        args = tuple(map(_convert_argument, args))
        kwargs = {name: _convert_argument(x) for name, x in kwargs.items()}
        return fn(*args, **kwargs)
    return conversion.convert(fn)(*args, **kwargs)


def iterate(fn: Any, /, *args: object, **kwargs: object) -> Any:
    """Returns what a `for` loops over: `Steps` for a range of arrays."""
    # With Keras in the process, functions of arrays are wrapped for its models.
    if inspect.unwrap(fn) is _RANGE:
        return loops.make_steps(args, kwargs)
    if fn is range and any(map(carried.is_unknown, args)):
        return loops.make_steps(args, kwargs)
    return call(fn, *args, **kwargs)


def _module_of(fn: object) -> str:
    """Returns the package that the code of a function is from, or ""."""
    inner = getattr(fn, "__func__", fn)
    if isinstance(inner, types.FunctionType):
        name = execution_conversion.module_of(inner.__globals__, inner.__code__)
    elif isinstance(fn, function.COMPILED):
        return ""
    else:
        name = getattr(fn, "__module__", None) or type(fn).__module__
    return str(name).partition(".")[0]


def _convert_argument(x: Any) -> Any:
    """Returns an argument; a function of the user's is converted."""
    if isinstance(x, _FUNCTIONS):
        return conversion.convert(x)
    if type(x) in (list, tuple) and any(isinstance(y, _FUNCTIONS) for y in x):
        return type(x)(map(_convert_argument, x))
    return x


def _check_run(fn: object) -> None:
    """Raises `NeedsHost` if a loop of the program would run a step of all replicas."""
    owner = getattr(fn, "__self__", None)
    name = getattr(fn, "__name__", "")
    is_run = name in ("run", "experimental_run_v2") and isinstance(owner, base.Strategy)
    if is_run and loops.is_in_body():
        raise host_inputs.NeedsHost


def _find_overload(fn: object) -> Callable[..., Any] | None:
    """Returns what a function of Python's becomes for arrays that are not known."""
    try:
        return _OVERLOADS.get(fn)
    except TypeError:  # It cannot be a key.
        return None


def _to_type(dtype: DTypeLike) -> Callable[..., Any]:
    return lambda x: tensors.tensor(x).astype(dtype)


def _fold(fn: Callable[..., Any]) -> Callable[..., Any]:
    def combine(*args: Any) -> Any:
        values = list(args) if len(args) > 1 else list(args[0])
        return functools.reduce(fn, tensors.to_one_type("max", *values))

    return combine


_OVERLOADS: dict[Any, Callable[..., Any]] = {
    int: _to_type(jnp.int32),
    float: _to_type(jnp.float32),
    bool: _to_type(bool),
    max: _fold(jnp.maximum),
    min: _fold(jnp.minimum),
    range: lambda *args: loops.make_steps(args, {}),
}
