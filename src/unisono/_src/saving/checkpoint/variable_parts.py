"""A variable in parts, as checkpoints see it: one array."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from unisono._src.foundation import ambient, library_hooks
from unisono._src.state import assignment
from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.state.variables import Variable


@final
class VariableInParts(library_hooks.LibraryVariable):
    """A `ShardedVariable` as one array, whatever its number of parts.

    So it can be restored into another number of parts, and under another strategy.
    """

    owner: ShardedVariable

    @property
    def strategy_variable(self) -> Any:
        """None: no single variable keeps the value."""
        return None

    @property
    def name(self) -> str:
        """The name of the variable in messages."""
        return self.owner.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return self.owner.shape

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.owner.dtype

    def read(self, is_detached: bool) -> np.ndarray:
        """Returns the whole, put together on the host."""
        return self.owner.numpy()

    def assign(self, value: object) -> None:
        """Gives each part its rows."""
        array = np.asarray(value)
        with ambient.enter(ambient.ROOT):
            for v, offset in zip(self.owner.variables, self.owner.offsets, strict=True):
                part = array[offset : offset + v.shape[0]]
                assignment.assign(v, assignment.REPLACE, part, False)

    @contextlib.contextmanager
    def lend(self) -> Iterator[Variable]:
        """Gives a variable with the whole value, for exported models.

        Meanwhile it is the only part of the owner, so that functions use it.
        """
        owner = self.owner
        with ambient.push(placement=None, strategy=None):
            whole = Variable(owner.numpy(), name=self.name)
        before = owner.variables, owner.offsets
        owner.variables, owner.offsets = [whole], [0]
        try:
            yield whole
        finally:
            owner.variables, owner.offsets = before


def variable_in_parts(variable: ShardedVariable) -> VariableInParts:
    """Returns a variable as checkpoints see it; the same object at every call."""
    # Kept by the variable itself: a restoration finds objects by their identity.
    found: VariableInParts = vars(variable).setdefault(
        "_held", VariableInParts(variable)
    )
    return found
