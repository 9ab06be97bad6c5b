"""`assert_cardinality`: the user states how many elements there are."""

from __future__ import annotations

import dataclasses
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, nodes
from unisono._src.input.stages.selecting import Make


@final
@dataclasses.dataclass(frozen=True, eq=False)
class AssertCardinality(nodes.Selecting):
    """The same elements, whose number the user states."""

    expected: int
    keeps_spec = True

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that checks the number while reading."""
        return _Counted(make(), self.expected)

    @property
    def cardinality(self) -> int:
        """Returns the number that the user stated."""
        return self.expected


@final
class _Counted(cursors.Derived):
    """Counts the elements, and raises if there are more or fewer than expected."""

    kept = ("seen",)

    def __init__(self, source: cursors.Cursor, expected: int) -> None:
        super().__init__(source)
        self._expected, self._seen = expected, 0

    def read(self, count: int) -> Any:
        found = self._source.read(count)
        self._seen += len(found)
        is_over = len(found) < count
        if is_over and self._expected == nodes.INFINITE:
            raise errors.FailedPreconditionError(
                "Input dataset was expected to contain an infinite number of elements, "
                f"but contained {self._seen}."
            )
        if self._expected >= 0 and (
            self._seen > self._expected or (is_over and self._seen < self._expected)
        ):
            raise errors.FailedPreconditionError(
                f"Input dataset was expected to contain {self._expected} elements, but "
                f"contained {'more' if self._seen > self._expected else self._seen}."
            )
        return found
