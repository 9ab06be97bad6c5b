"""Global batches, and others made of their rows: reordered, in parts, repeated."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from unisono._src.input.distribution import steps

# A batch is a structure of arrays with a common first axis, and of what has none.
Batch = Any


def take(given: Iterable[Batch], most: int | None) -> list[Batch]:
    """Returns the batches to compare, as arrays of the host.

    Raises:
        TypeError: the batches can be read once only.
        ValueError: there are none.
    """
    if isinstance(given, Iterator):
        raise TypeError(
            "check_parity reads the batches several times and leaves them as they are, "
            f"and a {type(given).__name__} can be read once. Pass a list of global "
            "batches or a dataset."
        )
    found = [jax.tree.map(_as_host, batch) for batch in itertools.islice(given, most)]
    if not found:
        raise ValueError("There are no batches to compare: `batches` is empty.")
    return found


def _as_host(x: Any) -> Any:
    is_array = isinstance(x, (jax.Array, np.ndarray)) or hasattr(x, "__array__")
    return np.asarray(x) if is_array else x


def count_rows(batch: Batch) -> int:
    """Returns the number of rows that most arrays of a batch have."""
    sizes = [len(x) for x in jax.tree.leaves(batch) if _has_rows(x)]
    return max(set(sizes), key=sizes.count) if sizes else 0


def _has_rows(x: object) -> bool:
    return isinstance(x, np.ndarray) and x.ndim > 0


def pick(batch: Batch, rows: Any) -> Batch:
    """Returns the batch of some rows, given by their numbers."""
    count = count_rows(batch)
    return jax.tree.map(
        lambda x: x[rows] if _has_rows(x) and len(x) == count else x, batch
    )


def orders(rows: int) -> list[np.ndarray]:
    """Returns orders of the rows, by which rounding is measured: as it is, and others.

    >>> [order.tolist() for order in orders(3)]
    [[0, 1, 2], [1, 0, 2], [2, 1, 0]]
    """
    mixed = np.random.RandomState(rows).permutation(rows)
    return [np.arange(rows), mixed, np.arange(rows)[::-1]]


def bounds(batch: Batch, replicas: int) -> Sequence[tuple[int, int]]:
    """Returns the first row of each replica, and the one behind its last."""
    return steps.chunks(count_rows(batch), replicas)


def part(batch: Batch, replicas: int, replica: int) -> Batch:
    """Returns the rows of one replica."""
    start, stop = bounds(batch, replicas)[replica]
    return pick(batch, np.arange(start, stop))


def repeat_part(batch: Batch, replicas: int, replica: int = 0) -> Batch:
    """Returns a batch whose parts are all like the part of one replica."""
    start, stop = bounds(batch, replicas)[replica]
    size = max(min(count_rows(batch) // replicas, stop - start), 1)
    return pick(batch, np.tile(np.arange(start, start + size), replicas))


def change_row(batch: Batch, row: int) -> Batch:
    """Returns the batch with other numbers in one row."""

    def change(x: Any) -> Any:
        if not (_has_rows(x) and np.issubdtype(x.dtype, np.inexact)):
            return x
        changed = np.array(x)
        changed[row] = changed[row] * 1.5 + 0.5
        return changed

    return jax.tree.map(change, batch)


def call(step: Callable[..., Any], batch: Batch) -> Any:
    """Calls a step with a batch.

    A step with one parameter gets the batch; one with several gets its members.
    """
    if isinstance(batch, dict) or not isinstance(batch, (tuple, list)):
        return step(batch)
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return step(*batch)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    asked = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    has_rest = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return step(batch) if len(asked) == 1 and not has_rest else step(*batch)
