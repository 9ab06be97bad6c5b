"""Makes variables at certain places on parameter servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

import jax
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.servers.messages import Request
from unisono._src.servers.server_files import SavingServers
from unisono._src.state import creation, remote_state, storage
from unisono._src.state.variables import ResourceVariable, Variable

_V = TypeVar("_V", bound=Variable)


@final
class PerWorkerVariable(Variable):
    """A variable with a value for each worker, which functions of the worker see.

    A server keeps the values. A worker that is replaced begins with the first value.
    """

    def read_all(self) -> list[np.ndarray]:
        """Returns the value of each worker, in order."""
        home = remote_state.home_of(self.state_cell)
        assert isinstance(home.group, SavingServers)
        (server,) = home.servers
        asked = [Request(f"{home.key}{i}") for i in range(home.workers)]
        what = f"reading '{self.state_cell.name}'"
        found = home.group.call_each(what, "pull", {server: (asked,)})
        values: list[np.ndarray] = found[server]
        return values


def make_zeros(
    shape: tuple[int, ...], dtype: np.dtype, name: str, home: remote_state.Home
) -> Variable:
    """Makes a variable of zeros on the servers of `home`; they make the zeros."""
    return _make(ResourceVariable, home, shape, dtype, name, None)


def make_per_worker(
    home: remote_state.Home,
    initial_value: ArrayLike | Callable[[], ArrayLike],
    dtype: DTypeLike | None = None,
    name: str | None = None,
    **others: object,
) -> PerWorkerVariable:
    """Returns a variable with a value for each worker.

    Args:
        home: the place of variables with a value for each worker.
        initial_value: the first value of all of them, or a function that returns it.
        dtype: the type of its elements; default that of the first value.
        name: its name.
        **others: further arguments of `Variable`, which do not count.
    """
    name = name or "Variable"
    value: jax.Array = creation.initial_array(initial_value, dtype, None, name)
    return _make(PerWorkerVariable, home, value.shape, value.dtype, name, value)


def _make(
    kind: type[_V],
    home: remote_state.Home,
    shape: tuple[int, ...],
    dtype: np.dtype,
    name: str,
    value: jax.Array | None,
) -> _V:
    """Makes a variable on the servers of `home`; None stands for zeros."""
    frame = ambient.current()
    origin = creation.find_origin()
    with ambient.push(colocate=home):
        cell = storage.Cell(
            storage.Policy.SERVER, tuple(shape), dtype, frame.placement, name, origin
        )
    # Not by a frame, which would need the array: the server makes the zeros itself.
    remote_state.home_of(cell).group.create(cell, value)
    made: _V = kind.assemble(
        cell,
        trainable=False,
        synchronization=VariableSynchronization.AUTO,
        aggregation=VariableAggregation.NONE,
        strategy=frame.strategy,
    )
    return made
