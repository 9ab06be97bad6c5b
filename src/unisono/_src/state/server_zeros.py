"""Makes variables of zeros on parameter servers."""

from __future__ import annotations

from typing import Any

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.state import creation, storage
from unisono._src.state.variables import ResourceVariable, Variable


def make_zeros(shape: tuple[int, ...], dtype: Any, name: str, home: Any) -> Variable:
    """Makes a variable of zeros on the servers of `home`; they make the zeros."""
    frame = ambient.current()
    with ambient.push(colocate=home):
        cell = storage.Cell(
            storage.Policy.SERVER,
            tuple(shape),
            dtype,
            frame.placement,
            name,
            creation.find_origin(),
        )
    assert cell.home is not None
    # Not by a frame, which would need the array: the server makes the zeros itself.
    cell.home.group.create(cell, None)
    made: Variable = ResourceVariable.assemble(
        cell,
        trainable=False,
        synchronization=VariableSynchronization.AUTO,
        aggregation=VariableAggregation.NONE,
        strategy=frame.strategy,
    )
    return made
