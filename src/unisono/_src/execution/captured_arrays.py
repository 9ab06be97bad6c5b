"""The arrays that a program captures, which several workers pass as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np

from unisono._src.machines import topology


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


def _is_input(x: Any, mesh: topology.Topology) -> bool:
    """Whether a constant of a program on `mesh` becomes an input of it."""
    is_array = isinstance(x, (jax.Array, np.ndarray))
    return mesh.is_spread and is_array
