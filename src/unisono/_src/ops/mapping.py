"""`map_fn`, `scan`, `foldl`, `foldr` and `vectorized_map`: functions over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from unisono._src.execution.specs import TensorSpec
from unisono._src.foundation import errors, nest
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops import bodies, shaping, structures, tensors
from unisono._src.ops.host import eager_values

__all__ = ["foldl", "foldr", "map_fn", "scan", "vectorized_map"]

_R = TypeVar("_R")
_A = TypeVar("_A")


def _rows(elems: Any, name: str) -> tuple[list[Any], int]:
    """Returns the arrays of a structure, and how many rows they have.

    Raises:
        ValueError: an array has no rows, or another number of them.
    """
    found = bodies.arrays(elems)
    if not found:
        raise ValueError(f"elems must be provided: {name} got no arrays.")
    if any(not x.ndim for x in found):
        raise ValueError(
            "Elements in elems must be 1+ dimensional Tensors, not scalars"
        )
    sizes = [x.shape[0] for x in found]
    for size in sizes:
        if size != sizes[0]:
            raise ValueError(f"Dimensions {sizes[0]} and {size} are not compatible")
    return found, sizes[0]


def _rebuild(like: Any, flat: Any) -> Any:
    given = iter(flat)
    return nest.map_structure(lambda _: next(given), like)


def _run(
    step: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    elems: Any,
    name: str,
    is_reversed: bool = False,
) -> tuple[Any, Any]:
    """Returns the last value of a loop over rows, and the stacked results of the rows.

    Args:
        step: gets the value and a row, and returns the next value and a result.
        carry: the first value, a structure.
        elems: a structure of arrays.
        name: the public name of the loop.
        is_reversed: whether the last row comes first.
    """
    rows, length = _rows(elems, name)
    if not bodies.is_traced():
        order = range(length - 1, -1, -1) if is_reversed else range(length)
        # A result has the place of its row, also if the last row comes first.
        given: list[Any] = [None] * length
        for i in order:
            carry, given[i] = step(carry, _rebuild(elems, [x[i] for x in rows]))
        return carry, _stack(given)
    start = bodies.arrays(carry)
    # `shapes` is filled while `run_scan` traces the step.
    count, shapes = len(start), dict[str, Any]()

    def flat_step(*flat: Any) -> list[Any]:
        row = _rebuild(elems, flat[count:])
        new, result = step(_rebuild(carry, flat[:count]), row)
        structures.assert_same_structure(carry, new, check_types=False)
        # None stays None: JAX's loop carries arrays only.
        shapes["result"] = nest.map_structure(lambda x: x is None, result)
        return [*nest.leaves(new), *(x for x in nest.leaves(result) if x is not None)]

    last, out, _ = bodies.run_scan(flat_step, start, rows, length, is_reversed)
    return _rebuild(carry, last), _fill(shapes["result"], out)


def _fill(shape: Any, flat: Any) -> Any:
    given = iter(flat)
    return nest.map_structure(lambda is_none: None if is_none else next(given), shape)


def _stack(given: list[Any]) -> Any:
    """Returns the results of all rows as one structure of arrays."""
    if not given:
        return None
    columns = [list(nest.leaves(x)) for x in given]
    for one in given[1:]:
        structures.assert_same_structure(given[0], one, check_types=False)
    try:
        stacked = [
            None if parts[0] is None else shaping.stack(_to_tensors(parts))
            for parts in zip(*columns, strict=True)
        ]
    except ValueError as error:
        raise ValueError(f"Incompatible shape for value: {error}") from error
    return _rebuild(given[0], stacked)


def _to_tensors(parts: Sequence[Any]) -> list[Any]:
    return [eager_values.tensor(x) for x in parts]


@everyday_name("map_fn")
def map_fn(
    fn: Callable[[Any], _R],
    elems: object,
    dtype: object = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: object = None,
) -> _R:
    """Returns the stacked results of a function that is called for each row.

    Args:
        fn: a function that takes a row, in the structure of `elems`.
        elems: an array, or a structure of arrays with equal numbers of rows.
        dtype: the older name of `fn_output_signature`.
        parallel_iterations: accepted for compatibility with TensorFlow and ignored.
        back_prop: accepted for compatibility with TensorFlow and ignored.
        swap_memory: accepted for compatibility with TensorFlow and ignored.
        infer_shape: accepted for compatibility with TensorFlow and ignored.
        name: accepted for compatibility with TensorFlow and ignored.
        fn_output_signature: the dtypes of the results, in the structure of the results;
            by default those of `elems`.

    Raises:
        InvalidArgumentError: the dtype of a result is not the expected one.
        ValueError: an array is a scalar, the numbers of rows differ, or the structure
            of the results is not the expected one.

    >>> map_fn(lambda x: x * x, np.array([1, 2, 3])).tolist()
    [1, 4, 9]
    """
    _check_callable(fn)
    wanted = dtype if fn_output_signature is None else fn_output_signature

    def step(carry: Any, row: Any) -> Any:
        made = fn(row)
        _check_results(made, row if wanted is None else wanted)
        return carry, made

    _, out = _run(step, (), elems, "map_fn")
    if out is None and bodies.arrays(elems)[0].shape[0] == 0:
        like = elems if wanted is None else wanted
        out = nest.map_structure(_no_rows, like)
    found: _R = out
    return found


def _no_rows(like: Any) -> Any:
    return eager_values.tensor(np.zeros(0, _type_of(like)))


def _check_callable(fn: Callable[..., object]) -> None:
    if not callable(fn):
        raise TypeError(f"The provided function {fn!r} is not callable.")


def _type_of(x: Any) -> Any:
    if isinstance(x, TensorSpec) or tensors.is_array(x):
        return np.dtype(x.dtype)
    if isinstance(x, (np.ndarray, np.generic, int, float, bytes, list, tuple)):
        return eager_values.tensor(x).dtype
    return np.dtype(x)


def _check_results(made: Any, like: Any) -> None:
    """Raises unless a result has the structure and the types that were told."""
    structures.assert_same_structure(like, made, check_types=False)
    pairs = zip(nest.leaves(like), nest.leaves(made), strict=True)
    for wanted, found in pairs:
        if wanted is None:
            continue
        array, expected = eager_values.tensor(found), _type_of(wanted)
        if isinstance(array, jax.Array) and expected.kind != "O":
            expected = jax.dtypes.canonicalize_dtype(expected)
        if array.dtype != expected:
            raise errors.InvalidArgumentError(
                f"map_fn got a result of type {array.dtype}, and expected {expected}. "
                "Write the types of results as fn_output_signature."
            )


@everyday_name("scan")
def scan(
    fn: Callable[[_A, Any], _A],
    elems: object,
    initializer: object = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> _A:
    """Returns all values of an accumulator that a function updates for each row.

    Args:
        fn: a function that takes the accumulator and a row, and returns the new
            accumulator.
        elems: an array, or a structure of arrays with equal numbers of rows.
        initializer: the initial accumulator; by default the first row, which is then
            also the first result.
        parallel_iterations: accepted for compatibility with TensorFlow and ignored.
        back_prop: accepted for compatibility with TensorFlow and ignored.
        swap_memory: accepted for compatibility with TensorFlow and ignored.
        infer_shape: accepted for compatibility with TensorFlow and ignored.
        reverse: whether to start with the last row.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: `fn` is not a function.
        ValueError: an array is a scalar, the numbers of rows differ, or the accumulator
            changes its structure, shape or dtype.

    >>> scan(lambda total, x: total + x, np.array([1, 2, 3])).tolist()
    [1, 3, 6]
    """
    _check_callable(fn)

    def step(carry: Any, row: Any) -> Any:
        made = fn(carry, row)
        return made, made

    if initializer is not None:
        first = nest.map_structure(bodies.strong_array, initializer)
        found: _A = _run(step, first, elems, "scan", reverse)[1]
        return found
    first, rest = _first_and_rest(elems, "scan", reverse)
    _, out = _run(step, first, rest, "scan", reverse)

    def join(one: Any, others: Any) -> Any:
        parts = [others, one[None]] if reverse else [one[None], others]
        return shaping.concat(parts, 0)

    if out is None:
        # There was one row, which is the only result.
        only: _A = nest.map_structure(lambda x: x[None], first)
        return only
    pairs = zip(nest.leaves(first), nest.leaves(out), strict=True)
    found = _rebuild(first, [join(a, b) for a, b in pairs])
    return found


def _first_and_rest(elems: Any, name: str, is_last: bool) -> tuple[Any, Any]:
    """Returns the row with which a loop begins, and the other rows."""
    rows, length = _rows(elems, name)
    if not length:
        raise ValueError(f"{name} needs an initializer, because there are no rows.")
    first = [x[-1] if is_last else x[0] for x in rows]
    rest = [x[:-1] if is_last else x[1:] for x in rows]
    return _rebuild(elems, first), _rebuild(elems, rest)


def _fold(fn: Any, elems: Any, initializer: Any, name: str, is_last: bool) -> Any:
    _check_callable(fn)

    def step(carry: Any, row: Any) -> Any:
        return fn(carry, row), ()

    if initializer is None:
        first, elems = _first_and_rest(elems, name, is_last)
    else:
        first = nest.map_structure(bodies.strong_array, initializer)
    return _run(step, first, elems, name, is_last)[0]


@everyday_name("foldl")
def foldl(
    fn: Callable[[_A, Any], _A],
    elems: object,
    initializer: object = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> _A:
    """Returns the last value of an accumulator that a function updates for each row.

    Args:
        fn: a function that takes the accumulator and a row, and returns the new
            accumulator.
        elems: an array, or a structure of arrays with equal numbers of rows.
        initializer: the initial accumulator; by default the first row.
        parallel_iterations: accepted for compatibility with TensorFlow and ignored.
        back_prop: accepted for compatibility with TensorFlow and ignored.
        swap_memory: accepted for compatibility with TensorFlow and ignored.
        name: accepted for compatibility with TensorFlow and ignored.

    >>> int(foldl(lambda total, x: 2 * total + x, np.array([1, 2, 3])))
    11
    """
    found: _A = _fold(fn, elems, initializer, "foldl", False)
    return found


@everyday_name("foldr")
def foldr(
    fn: Callable[[_A, Any], _A],
    elems: object,
    initializer: object = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> _A:
    """Returns the result of `foldl` for the rows from the last to the first.

    The arguments are those of `foldl`.

    >>> int(foldr(lambda total, x: 2 * total + x, np.array([1, 2, 3])))
    17
    """
    found: _A = _fold(fn, elems, initializer, "foldr", True)
    return found


@everyday_name("vectorized_map", difference="It never falls back to a loop.")
def vectorized_map(
    fn: Callable[[Any], _R],
    elems: object,
    fallback_to_while_loop: bool = True,
    warn: bool = True,
) -> _R:
    """Returns the stacked results of a function, computed for all rows at once.

    Args:
        fn: a function that takes a row, in the structure of `elems`.
        elems: an array, or a structure of arrays with equal numbers of rows.
        fallback_to_while_loop: accepted for compatibility with TensorFlow and ignored.
        warn: accepted for compatibility with TensorFlow and ignored.

    Raises:
        ValueError: an array is a scalar, or the numbers of rows differ.

    >>> vectorized_map(lambda x: x.sum(), np.array([[1, 2], [3, 4]])).tolist()
    [3, 7]
    """
    _check_callable(fn)
    rows, _ = _rows(elems, "vectorized_map")

    if not any(isinstance(x, jax.Array) for x in rows):
        # On the host a loop is faster than what JAX would make of the rows.
        looped: _R = _run(lambda _, row: ((), fn(row)), (), elems, "vectorized_map")[1]
        return looped

    def flat_fn(*flat: Any) -> Any:
        return nest.map_structure(tensors.tensor, fn(_rebuild(elems, flat)))

    # As flat arrays, because JAX's trees are not TensorFlow's structures.
    found: _R = jax.vmap(flat_fn)(*rows)
    return found
