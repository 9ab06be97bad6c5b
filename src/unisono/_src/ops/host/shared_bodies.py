"""Everyday names whose one body runs with JAX, or with NumPy in datasets' functions.

A body computes by `jax.numpy`, `ops.tensors` and helpers that do the same. On the host
the same code runs with NumPy in their place: a second function with the code of the
first and other global names. So both have the same arguments, checks and errors.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation.tensorflow_names import everyday
from unisono._src.ops import kinks, tensors
from unisono._src.ops.host import jax_functions, numpy_functions, working_arrays
from unisono._src.training import nn
from unisono._src.values import jax_traces, row_positions

_T = TypeVar("_T", bound=Callable[..., Any])

_ROOM = "unisono._src.ops."
# Modules whose bodies only make and move elements: NumPy has nothing to warn of, and to
# keep it from that takes as long as such a body.
_WITHOUT_ARITHMETIC = ("indexing", "making", "shaping")
_INSTEAD: dict[str, types.ModuleType] = {
    jax.__name__: jax_functions,
    jnp.__name__: numpy_functions,
    tensors.__name__: working_arrays,
    # NumPy has no gradients.
    kinks.__name__: numpy_functions,
    # These compute with JAX, and so does a body that calls them.
    nn.__name__: jax_functions,
    row_positions.__name__: jax_functions,
}


def array_function(
    path: str,
    *also: str,
    difference: str = "",
    quick: Callable[..., object] | None = None,
) -> Callable[[_T], _T]:
    """Returns `everyday.array_function`'s decorator for a function with a shared body.

    The body may call what `working_arrays`, `numpy_functions` and `jax_functions` have.
    If it needs more of JAX, all of it runs with JAX. `quick` is that of
    `host_bodies.choose`.
    """

    def give(function: _T) -> _T:
        host = run_on_host(function)
        return everyday.array_function(
            path, *also, difference=difference, host=host, quick=quick
        )(function)

    return give


def everyday_name(path: str, *also: str, difference: str = "") -> Callable[[_T], _T]:
    """Returns `everyday.everyday_name`'s decorator for a function that needs JAX.

    In functions of datasets its results are arrays of the host, so that what follows
    computes with NumPy.
    """

    def give(function: _T) -> _T:
        def host(*args: Any, **kwargs: Any) -> Any:
            return working_arrays.present(_call_with_jax(function, args, kwargs))

        return everyday.everyday_name(path, *also, difference=difference, host=host)(
            function
        )

    return give


def run_on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that runs the body of another with NumPy."""

    @functools.cache
    def body() -> Callable[..., Any]:
        # At the first call: the module of the function is complete by then.
        inner: Any = inspect.unwrap(function)
        return _rebind(inner, _names_of(inner.__globals__["__name__"]))

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            found = body()(*args, **kwargs)
        except working_arrays.NeedsJax:
            found = _call_with_jax(function, args, kwargs)
        return working_arrays.present(found)

    module = function.__module__.rpartition(".")[2]
    # Infinity and NaN are results, as in TensorFlow.
    return run if module in _WITHOUT_ARITHMETIC else np.errstate(all="ignore")(run)


def _call_with_jax(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Returns what JAX makes of the host's values: on the CPU, with 64-bit types."""
    if not jax_traces.is_clean():
        # A program that the user's own function traces keeps the types it began with.
        return function(*args, **kwargs)
    with jax.enable_x64(True), jax.default_device(_find_cpu()):
        return function(*args, **kwargs)


@functools.cache
def _find_cpu() -> jax.Device | None:
    """Returns the CPU; None, which is JAX's own choice, if it was told to have none."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


@functools.cache
def _names_of(module: str) -> dict[str, Any]:
    """Returns the global names of a module, for bodies that run on the host."""
    given = vars(sys.modules[module])
    made = dict(given)
    made.update((name, _stand_in(x, given, made)) for name, x in given.items())
    return made


def _stand_in(x: Any, given: dict[str, Any], made: dict[str, Any]) -> Any:
    """Returns what a global name means on the host.

    Args:
        x: what it means with JAX.
        given: the global names of its module.
        made: those of the functions that run on the host.
    """
    if isinstance(x, types.ModuleType):
        if x.__name__.startswith(_ROOM) and x.__name__ not in _INSTEAD:
            return types.SimpleNamespace(**_names_of(x.__name__))
        return _INSTEAD.get(x.__name__, x)
    # The everyday names, whose module is public, choose between their bodies.
    if isinstance(x, types.FunctionType) and x.__module__.startswith(_ROOM):
        inner: Any = inspect.unwrap(x)
        return _rebind(inner, made) if inner.__globals__ is given else x
    return x


def _rebind(function: types.FunctionType, names: dict[str, Any]) -> Callable[..., Any]:
    """Returns a function with the code of another and other global names.

    A function of this room that it has from the function around it gets the names of
    the host, too.
    """
    cells = [x.cell_contents for x in function.__closure__ or ()]
    made = types.FunctionType(
        function.__code__,
        names,
        function.__name__,
        function.__defaults__,
        tuple(types.CellType(_rebind_inner(x)) for x in cells),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _rebind_inner(x: Any) -> Any:
    """Returns what a name of the function around a body means on the host."""
    if not isinstance(x, types.FunctionType):
        return x
    where = x.__globals__["__name__"]
    return _rebind(x, _names_of(where)) if where.startswith(_ROOM) else x
