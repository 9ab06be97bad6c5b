"""Stand-ins for variables that can be compared and hashed by identity."""

from __future__ import annotations

from typing import Generic, TypeVar, final

_T = TypeVar("_T")


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
