"""Which variable something is: stand-ins for variables, and the variable of a cell."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Generic, TypeVar, final

from unisono._src.state.storage import Cell

if TYPE_CHECKING:
    from unisono._src.state.variables import Variable

_T = TypeVar("_T")

# Weakly in both directions: neither a cell nor a variable is kept alive.
_by_cell: weakref.WeakKeyDictionary[Cell, weakref.ref[Variable]] = (
    weakref.WeakKeyDictionary()
)


@final
class Reference(Generic[_T]):
    """Stands for an object in sets and as a key; two of one object are equal.

    ``v == w`` of variables compares their elements, and this compares the variables.

    Args:
        wrapped: the object.
    """

    def __init__(self, wrapped: _T) -> None:
        self._wrapped = wrapped

    def deref(self) -> _T:
        """Returns the object itself."""
        return self._wrapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._wrapped is other._wrapped

    def __hash__(self) -> int:
        # The reference keeps the object, so its id is not given to another one.
        return id(self._wrapped)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._wrapped!r}>"


def note(variable: Variable) -> None:
    """Notes a new variable, unless it is a component of another one."""
    if variable.replica_index is None:
        _by_cell[variable.state_cell] = weakref.ref(variable)


def find(cell: Cell) -> Variable | None:
    """Returns the variable that has its value in `cell`; None if there is none now."""
    found = _by_cell.get(cell)
    return None if found is None else found()
