"""`py_function` and `numpy_function`: Python code as a part of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import io_callback

from unisono._src.execution import program_checks
from unisono._src.execution.specs import TensorSpec
from unisono._src.foundation import ambient, dtypes, host_types, nest
from unisono._src.foundation.tensorflow_names import host_bodies
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops import bodies, kinds, tensors
from unisono._src.ops.text import arrays as texts

__all__ = ["numpy_function", "py_function"]

_R = TypeVar("_R")


@everyday_name(
    "py_function",
    difference=(
        "In a compiled function `Tout` is a `TensorSpec` with the shape, and the "
        "result has no gradient."
    ),
)
def py_function(
    func: Callable[..., _R],
    inp: Sequence[object],
    Tout: object,
    name: str | None = None,
) -> _R:
    """Returns what a Python function computes from arrays, also in compiled code.

    Args:
        func: the function, which gets arrays.
        inp: the arguments of the function.
        Tout: the dtype of the result, or a list of dtypes. In a compiled `function` it
            must be a `TensorSpec` with the shape, or a list of them.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: in a compiled `function`, `Tout` has no shape.

    >>> float(py_function(lambda x: x * 2, [3.0], np.float32))
    6.0
    """
    found: _R = _call(func, inp, Tout, "py_function", tensors.tensor)
    return found


@everyday_name(
    "numpy_function",
    difference="In a compiled function `Tout` is a `TensorSpec` with the shape.",
)
def numpy_function(
    func: Callable[..., _R],
    inp: Sequence[object],
    Tout: object,
    stateful: bool = True,
    name: str | None = None,
) -> _R:
    """Returns what a Python function computes from NumPy arrays, also in compiled code.

    Args:
        func: the function, which gets NumPy arrays.
        inp: the arguments of the function.
        Tout: the dtype of the result, or a list of dtypes. In a compiled `function` it
            must be a `TensorSpec` with the shape, or a list of them.
        stateful: accepted for compatibility with TensorFlow and ignored.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: in a compiled `function`, `Tout` has no shape.

    >>> numpy_function(np.sort, [[3, 1, 2]], np.int32).tolist()
    [1, 2, 3]
    """
    found: _R = _call(func, inp, Tout, "numpy_function", np.asarray)
    return found


def _call(
    func: Callable[..., object],
    inp: Sequence[object],
    wanted: Any,
    name: str,
    convert: Callable[[Any], Any],
) -> Any:
    if not callable(func):
        raise ValueError(f"Expected func to be callable. Received func={func!r}.")
    if ambient.is_in_dataset() and host_bodies.are_of_host(inp):
        return _call_on_host(func, inp, wanted, name)
    if not bodies.is_traced():
        given = [_read(x, name) for x in inp]
        if convert is np.asarray:
            # NumPy could not read the value of an open tape.
            given = [bodies.find_known_value(x) for x in given]
        # One text is `bytes`, for NumPy's functions, too.
        values = [x if isinstance(x, bytes) else convert(x) for x in given]
        as_type = _as_own_type if name == "numpy_function" else None
        return _results(func(*values), wanted, name, as_type)
    arrays = [tensors.tensor(x) for x in inp]
    specs = [_shape_of(spec, name) for spec in nest.leaves(wanted)]
    program_checks.tell_cost(name)

    def run(*values: jax.Array) -> list[np.ndarray]:
        made = _results(func(*map(convert, values)), wanted, name)
        return [np.asarray(x) for x in nest.leaves(made) if x is not None]

    # Not `pure_callback`: XLA may leave such a call out, or repeat it.
    flat = iter(io_callback(run, specs, *arrays))
    return nest.map_structure(lambda _: next(flat), wanted) if specs else None


def _call_on_host(
    func: Callable[..., object], inp: Sequence[object], wanted: Any, name: str
) -> Any:
    """Returns the results in a dataset's function: arrays and text of the host."""
    given = [elements.present(host_types.to_array(x)) for x in inp]
    if name == "numpy_function":
        given = [x.numpy() for x in given]
    return _results(func(*given), wanted, name, _as_host_type)


def _read(x: object, name: str) -> Any:
    """Returns an argument as an array of JAX, or text as it is on the host."""
    try:
        return tensors.tensor(x)
    except host_bodies.TextError:
        return texts.give(texts.read(name, x))


def _shape_of(spec: object, name: str) -> jax.ShapeDtypeStruct:
    if isinstance(spec, TensorSpec) and spec.shape.is_fully_defined():
        kind = jax.dtypes.canonicalize_dtype(spec.dtype)
        return jax.ShapeDtypeStruct(spec.shape, kind)
    raise TypeError(
        f"In a compiled function {name} needs the shape of its result: write "
        f"Tout=unisono.TensorSpec(shape, dtype) instead of Tout={spec!r}."
    )


def _results(
    made: object,
    wanted: Any,
    name: str,
    convert: Callable[[Any, Any], object] | None = None,
) -> Any:
    """Returns the results as arrays of the wanted types."""
    as_type = convert or _as_type
    if not nest.is_nested(wanted):
        return as_type(made, wanted)
    if not wanted:
        return []
    parts = list(made) if isinstance(made, (list, tuple)) else [made]
    if len(parts) != len(wanted):
        raise ValueError(
            f"{name} expects {len(wanted)} results, and the function has returned "
            f"{len(parts)}."
        )
    return [as_type(x, t) for x, t in zip(parts, wanted, strict=True)]


def _as_type(x: object, wanted: Any) -> jax.Array | None:
    if x is None:
        return None
    kind = wanted.dtype if isinstance(wanted, TensorSpec) else wanted
    if np.dtype(kind) == dtypes.string:
        text: jax.Array = texts.give(texts.read("py_function", x))
        return text
    dtype, found = jax.dtypes.canonicalize_dtype(np.dtype(kind)), tensors.tensor(x)
    made: jax.Array = found.astype(dtype)
    # Integers that do not fit would be others.
    is_same = dtype.kind not in "iu" or np.array_equal(found, made)
    if not kinds.can_hold(dtype, found.dtype) or not is_same:
        raise TypeError(
            f"The function has returned {x!r} of type {found.dtype}, which does not "
            f"fit Tout={dtype}. Convert it in the function, or give its type as Tout."
        )
    return made


def _as_own_type(x: object, wanted: Any) -> jax.Array | None:
    """Returns a result as it is: eagerly TensorFlow does not look at `Tout`."""
    if x is None:
        return None
    made = np.asarray(x)
    return _as_type(x, dtypes.string if made.dtype.kind in "OSU" else made.dtype)


def _as_host_type(x: Any, wanted: Any) -> object:
    kind = np.dtype(wanted.dtype if isinstance(wanted, TensorSpec) else wanted)
    if isinstance(x, jax.Array):
        x = np.asarray(x)
    return None if x is None else elements.present(host_types.to_array(x, kind))
