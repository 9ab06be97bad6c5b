"""TensorArrays that grow in loops.

An array of a program has a fixed size. In a loop of a program a TensorArray may grow if
the positions that it is written at are known before the program runs, as those of
``for i in tf.range(10)``: then it has its last size from the start. Any other such loop
runs on the host, and its turns note what they write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import nest
from unisono._src.foundation.jax_internals import ClosedJaxpr
from unisono._src.ops import bodies, tensor_array
from unisono._src.ops.tensor_array import TensorArray


def is_growing(value: object) -> bool:
    """Returns whether a value is a TensorArray that grows."""
    return isinstance(value, TensorArray) and value.dynamic_size


def has_growing(value: object) -> bool:
    """Returns whether there is a TensorArray that grows in a structure."""
    return any(map(is_growing, nest.leaves(value)))


@final
class Notes:
    """What the turns of a loop on the host add to TensorArrays."""

    def __init__(self) -> None:
        self._arrays: list[TensorArray] = []

    def take(self, values: Sequence[Any]) -> list[Any]:
        """Returns the values of a turn, in which arrays that grow note additions."""
        self._arrays = []

        def note(x: Any) -> Any:
            if not is_growing(x):
                return x
            self._arrays.append(x)
            return tensor_array.record(x, len(self._arrays) - 1)

        return [nest.map_structure(note, x) if has_growing(x) else x for x in values]

    def give(self, values: Sequence[Any]) -> list[Any]:
        """Returns the values after a turn, with what it has added."""

        def add(x: Any) -> Any:
            noted = tensor_array.find_notes(x)
            if noted is None:
                return x
            return tensor_array.add_notes(self._arrays[noted[0]], x)

        return [nest.map_structure(add, x) if has_growing(x) else x for x in values]


def find_sizes(
    turn: Callable[..., Any], given: Sequence[Any], most: int
) -> list[tuple[int, tuple[int, ...]] | None] | None:
    """Returns the sizes of TensorArrays after a loop, and the shapes of their entries.

    Args:
        turn: gets the number of a turn and the arrays; returns the arrays after it, and
            for each TensorArray the list of positions and values that it has written.
        given: the arrays before the loop.
        most: how many turns there are.

    Returns:
        For each TensorArray the number of entries that its positions need, and the
        shape of an entry; None for one that is not written. None if the program
        computes positions.
    """
    counts: list[int] = []
    shapes: list[Any] = []

    def flat(number: Any, *arrays: Any) -> list[Any]:
        counts.clear()
        shapes.clear()
        after, noted = turn(number, *arrays)
        places: list[Any] = []
        for written in noted:
            counts.append(len(written))
            shapes.append(written[0][1].shape if written else None)
            places += [bodies.strong_array(p) for p, _ in written]
        return [*after, *places]

    body = bodies.preview(flat, [jnp.zeros((), jnp.int32), *given])
    kept = body.count - sum(counts)
    if kept != len(given):
        return None
    places = _evaluate(body, given, list(range(kept, body.count)), most)
    if places is None:
        return None
    left = iter(places)
    found: list[tuple[int, tuple[int, ...]] | None] = []
    for count, shape in zip(counts, shapes, strict=True):
        ends = [int(np.max(next(left))) + 1 for _ in range(count)]
        found.append((max(ends), shape) if ends else None)
    return found


def _evaluate(
    body: bodies.Body, given: Sequence[Any], wanted: Sequence[int], most: int
) -> list[np.ndarray] | None:
    """Returns outputs of all turns of a loop; None if they depend on unknown values.

    Args:
        body: the program of a turn. It gets its number and the arrays before it, and
            its first outputs are the arrays after it.
        given: the arrays before the first turn.
        wanted: the outputs that are asked for.
        most: how many turns there are.
    """
    jaxpr = body.jaxpr
    state: set[int] = set()
    while True:
        outputs = [*sorted(state), *wanted]
        equations, needed = _slice(jaxpr, [jaxpr.outvars[i] for i in outputs])
        if equations is None or any(
            v in needed for v in jaxpr.invars[len(given) + 1 :]
        ):
            return None
        used = {i for i in range(len(given)) if jaxpr.invars[i + 1] in needed}
        if used <= state:
            break
        state |= used
    order = sorted(state)
    start = [bodies.find_known_value(given[i]) for i in order]
    pairs = list(zip(jaxpr.constvars, body.consts, strict=True))
    constants = [(v, bodies.find_known_value(c)) for v, c in pairs if v in needed]
    if any(x is None for x in [*start, *(c for _, c in constants)]):
        return None
    program = jaxpr.replace(
        constvars=[v for v, _ in constants],
        invars=[jaxpr.invars[0], *(jaxpr.invars[i + 1] for i in order)],
        outvars=[jaxpr.outvars[i] for i in outputs],
        eqns=equations,
    )
    closed = ClosedJaxpr(program, [np.asarray(c) for _, c in constants])

    def step(values: list[Any], number: Any) -> Any:
        out = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, number, *values)
        return out[: len(order)], out[len(order) :]

    with jax.ensure_compile_time_eval():
        first = [jnp.asarray(np.asarray(x)) for x in start]
        numbers = jnp.arange(most, dtype=jnp.int32)
        found = jax.jit(lambda: jax.lax.scan(step, first, numbers)[1])()
    return [np.asarray(x) for x in found]


def _slice(jaxpr: Any, outputs: Sequence[Any]) -> tuple[list[Any] | None, set[Any]]:
    """Returns the equations that outputs need, and all that these need.

    There is None in place of equations that do more than compute.
    """
    needed = {v for v in outputs if not hasattr(v, "val")}
    kept: list[Any] = []
    for equation in reversed(jaxpr.eqns):
        if not any(v in needed for v in equation.outvars):
            continue
        if equation.effects:
            return None, needed
        kept.append(equation)
        needed |= {v for v in equation.invars if not hasattr(v, "val")}
    return kept[::-1], needed
