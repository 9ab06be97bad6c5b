"""Variables of which each worker has its own value."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.state import creation, storage
from unisono._src.state.variables import Variable


@final
class PerWorkerVariable(Variable):
    """A variable with a value for each worker, which functions of the worker see.

    A server keeps the values. A worker that is replaced begins with the first value.
    """

    def read_all(self) -> list[np.ndarray]:
        """Returns the value of each worker, in order."""
        home = self.state_cell.home
        assert home is not None
        group: Any = home.group
        found: list[np.ndarray] = group.read_of_workers(self.state_cell)
        return found


def create(initial_value: Any, **kwargs: Any) -> PerWorkerVariable:
    """Returns a variable with a value for each worker.

    Args:
        initial_value: the first value of all of them, or a function that returns it.
        **kwargs: further arguments of `Variable`; `name` and `dtype` count.
    """
    frame = ambient.current()
    name = kwargs.get("name") or "Variable"
    value = creation.initial_array(initial_value, kwargs.get("dtype"), None, name)
    servers: Any = None if frame.placement is None else frame.placement.servers
    with ambient.push(colocate=servers.place_for_workers()):
        cell = storage.Cell(
            storage.Policy.SERVER,
            value.shape,
            value.dtype,
            frame.placement,
            name,
            creation.find_origin(),
        )
    cell.begin(value)
    made: PerWorkerVariable = PerWorkerVariable.assemble(
        cell,
        trainable=False,
        synchronization=VariableSynchronization.AUTO,
        aggregation=VariableAggregation.NONE,
        strategy=frame.strategy,
    )
    return made
