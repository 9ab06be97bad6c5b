"""Finds out by what the new value of a variable could differ between workers.

Workers run the same program, and what a collective has made of their numbers is equal
on all of them. But each passes its own arguments, captures its own arrays, and has its
own copy of variables that belong to no strategy. If one of these reaches a variable
that all workers share, the workers compare it (`step_marks`, docs/decisions/0013).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np

from unisono._src.execution import value_sources
from unisono._src.machines import topology
from unisono._src.state.storage import Cell

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn

# The first source stands for a value that workers have each computed for themselves.
OWN = 1


@final
class Constants:
    """The constants of a program; in one of several workers, arrays become its inputs.

    Workers may capture different arrays. XLA takes a constant to be the same on all
    devices and computes, for example, its sum over them without asking the others. And
    JAX compiles no arrays of other processes into a program.

    Args:
        values: all constants, in order.
        mesh: the devices of the program; None for a single device.

    Attributes:
        is_input: for each constant, whether it becomes an input.
        captured: the arrays that become inputs.
        spread: the same arrays, on the devices of all workers.
    """

    def __init__(self, values: Sequence[Any], mesh: topology.Topology | None) -> None:
        self._values = values
        self.is_input = [mesh is not None and _is_input(x, mesh) for x in values]
        pairs = zip(values, self.is_input, strict=True)
        self.captured = [x for x, is_input in pairs if is_input]
        # Once for each trace: every call passes the same arrays.
        self.spread = [mesh.spread(x) for x in self.captured if mesh is not None]

    def fill_in(self, spread: Sequence[Any]) -> list[Any]:
        """Return all constants, with the program's inputs for those of `spread`."""
        given = iter(spread)
        pairs = zip(self._values, self.is_input, strict=True)
        return [next(given) if is_input else x for x, is_input in pairs]


def _is_input(x: object, mesh: topology.Topology) -> bool:
    """Whether a constant of a program on `mesh` becomes an input of it."""
    is_array = isinstance(x, (jax.Array, np.ndarray))
    return mesh.is_spread and is_array


@final
@dataclasses.dataclass(frozen=True)
class Unproved:
    """What the workers must compare, because nothing proves that it is equal.

    Attributes:
        inputs: the positions of inputs of the program.
        captured: the positions of arrays that the function captures.
        written: the positions of new values of variables.
    """

    inputs: tuple[int, ...] = ()
    captured: tuple[int, ...] = ()
    written: tuple[int, ...] = ()


def is_shared(cell: Cell) -> bool:
    """Whether a variable has one value for all workers."""
    return cell.is_spread and not cell.is_stacked


def find_unproved(
    jaxpr: Jaxpr,
    constants: Constants,
    own: Sequence[bool],
    written: Sequence[Cell],
    differs: Sequence[bool] = (),
) -> Unproved:
    """Return what could make variables that workers share differ between them.

    Args:
        jaxpr: the program.
        constants: its constants.
        own: for each input, whether each worker passes its own.
        written: the cells that the first outputs of the program are for.
        differs: for each input, whether each worker takes another part of it; for none
            by default.
    """
    passed = [i for i, is_own in enumerate(own) if is_own]
    bits = {i: 2 << n for n, i in enumerate(passed)}
    start = 2 << len(passed)
    captured, count = [], 0
    for is_input in constants.is_input:
        captured.append(start << count if is_input else 0)
        count += is_input
    differing = [*differs, *[False] * (len(own) - len(differs))]
    inputs = [bits.get(i, 0) | (OWN if d else 0) for i, d in enumerate(differing)]
    follows = Dependence()
    found = follows.outputs(jaxpr, inputs, captured)
    shared = [(i, found[i]) for i, c in enumerate(written) if is_shared(c)]
    reached = value_sources.union(m for _, m in shared) | follows.decisive
    return Unproved(
        tuple(i for i in passed if bits[i] & reached),
        tuple(n for n in range(count) if (start << n) & reached),
        tuple(i for i, mask in shared if mask & OWN),
    )


@final
class Dependence(value_sources.SourceWalk):
    """Follows by which sources the values of a program may differ between workers."""

    def _follow_other(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        name = eqn.primitive.name
        if name == "shard_map":
            return self._follow_replicas(eqn, given)
        own = OWN if name in value_sources.SEPARATING else 0
        return [value_sources.union(given) | own] * len(eqn.outvars)

    def _follow_replicas(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        """Return the sources of what replicas return."""
        ins, outs = eqn.params["in_specs"], eqn.params["out_specs"]
        # Each replica has its own row of an array that is split. The array itself is
        # one value that all workers share.
        own = [m | (OWN if len(s) else 0) for m, s in zip(given, ins, strict=True)]
        found = self.outputs(eqn.params["jaxpr"], own)
        return [m & ~OWN if len(s) else m for m, s in zip(found, outs, strict=True)]
