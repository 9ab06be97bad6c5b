"""`window`: makes nested datasets of neighbouring elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

from unisono._src.input.plan import cursors, nodes


@final
class _Windows(cursors.Cursor):
    """Reads runs of elements, and makes a window of each."""

    def __init__(self, source: cursors.Cursor, node: Window) -> None:
        self._node = node
        self._trail = cursors.Trail(source, 64)
        self._source = source
        # The elements that were read and belong to the next windows, and the number of
        # the first of them.
        self._pending: list[Any] = []
        self._base = 0

    def read(self, count: int) -> list[Any]:
        node = self._node
        found: list[Any] = []
        # From the first to the last element of a
        # window, with those that the stride skips.
        span = (node.size - 1) * node.stride + 1
        while len(found) < count:
            missing = span - len(self._pending)
            if missing > 0:
                self._pending.extend(self._trail.read(missing))
            run = self._pending[: span : node.stride]
            if not run or (node.drop and len(run) < node.size):
                break
            found.append(node.wrap(run))
            self._drop(node.shift)
        return found

    def _drop(self, shift: int) -> None:
        """Moves on by `shift` elements, some of which may not have been read yet."""
        if shift > len(self._pending):
            self._trail.read(shift - len(self._pending))
        del self._pending[:shift]
        self._base += shift
        self._trail.forget_before(min(self._base, self._trail.read_so_far))

    def get_state(self) -> dict[str, Any]:
        start = self._trail.read_so_far - len(self._pending)
        return {"trail": self._trail.position_before(start)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._pending = []
        self._trail.return_to(state["trail"])
        self._base = self._trail.read_so_far

    def close(self) -> None:
        self._source.close()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Window(nodes.Unary):
    """Nested datasets of neighbouring elements.

    Attributes:
        size: the number of elements per window.
        shift: the distance between the beginnings of windows.
        stride: the distance between the elements of a window.
        drop: whether windows that are too short are dropped.
        wrap: makes a window of a list of elements.
        wrap_spec: makes the spec of a window of the spec of an element.
    """

    size: int
    shift: int
    stride: int
    drop: bool
    wrap: Callable[[list[Any]], Any]
    wrap_spec: Callable[[Any], Any]
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads window after window."""
        return _Windows(self.parent.cursor(), self)

    def _spec(self) -> Any:
        return self.wrap_spec(self.parent.spec)

    def example(self) -> Any:
        """Returns a window of one element."""
        return self.wrap([self.parent.example()])

    @property
    def cardinality(self) -> int:
        """Returns how many windows there are, as far as the plan tells."""
        inner = self.parent.cardinality
        if inner <= 0:
            return inner
        if self.drop:
            span = (self.size - 1) * self.stride + 1
            return max(0, (inner - span) // self.shift + 1)
        return -(-inner // self.shift)

    def __str__(self) -> str:
        return f"Window({self.size})"
