"""The state that `scan` and `reduce` carry from element to element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import elements

# The types of 64 bits, by NumPy's letters for kinds of numbers.
_WIDE = {"i": np.int64, "u": np.uint64, "f": np.float64}
# Returns the next state, and an output, for a state and an element.
Step = Callable[[Any, Any], tuple[Any, Any]]


def find_narrowed(initial: object) -> tuple[bool, ...]:
    """Returns which arrays of a state may have been narrowed from 64 to 32 bits.

    JAX narrows the numbers of its arrays, as of ``constant(0, int64)``. Numbers of
    Python's and of NumPy's have the type that the program gave them.

    >>> import jax.numpy as jnp
    >>> find_narrowed((jnp.int32(0), np.int32(0), 0))
    (True, False, False)
    """
    return tuple(map(_may_be_narrowed, elements.leaves(initial)))


def _may_be_narrowed(x: object) -> bool:
    if isinstance(x, (np.ndarray, np.generic)) or not hasattr(x, "dtype"):
        return False
    return np.dtype(x.dtype) in (np.int32, np.uint32, np.float32)


def advance(
    step: Step, state: object, element: object, narrowed: Sequence[bool], what: str
) -> tuple[Any, Any]:
    """Returns the next state and the output of one step.

    A state that was narrowed takes the type of 64 bits that the step returns or needs.
    Then the step runs again: it computes with 64 bits from the first element on.

    Args:
        step: takes a state and an element, and returns the next state and an output.
        state: the state.
        element: the element.
        narrowed: what `find_narrowed` told of the initial state.
        what: names the state in an error.

    Raises:
        TypeError: the next state has other types.
    """
    if not any(narrowed):
        made, output = step(state, element)
    else:
        state, (made, output) = _advance_wide(step, state, element, narrowed)
    elements.check_same_types(state, made, what)
    return made, output


def _advance_wide(
    step: Step, state: object, element: object, narrowed: Sequence[bool]
) -> tuple[object, tuple[Any, Any]]:
    """Returns the state that a step has computed with, and what it returned."""
    try:
        found = step(state, element)
        wide = _widen(state, narrowed, elements.leaves(found[0]))
    except (TypeError, errors.InvalidArgumentError):
        # Operators take arrays of one type, so it may need 64 bits.
        wide = _widen(state, narrowed)
        if wide is state:
            raise
    return (state, found) if wide is state else (wide, step(wide, element))


def _widen(
    state: object, narrowed: Sequence[bool], like: Iterable[object] | None = None
) -> object:
    """Returns a state with types of 64 bits where `like` has them; None for all."""
    before = [elements.as_array(x) for x in elements.leaves(state)]
    if like is None:
        after = [np.dtype(_WIDE.get(x.dtype.kind, x.dtype)) for x in before]
    else:
        after = [elements.as_array(x).dtype for x in like]
    # Where the structures differ, `check_same_types` raises.
    wide = [
        x.astype(dtype)
        if allowed and dtype.kind == x.dtype.kind and dtype.itemsize > x.dtype.itemsize
        else x
        for x, dtype, allowed in zip(before, after, narrowed, strict=False)
    ]
    if all(map(operator.is_, before, wide)):
        return state
    parts = iter(wide)
    return elements.map_leaves(lambda _: next(parts), state)
