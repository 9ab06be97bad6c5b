"""Stages that look at the elements and leave some out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.input.plan import cursors, elements, first_elements, nodes
from unisono._src.input.stages import mapping

_log = logging.getLogger("unisono")
# After this many failures without one element in between, `ignore_errors` gives up: the
# source is broken for good, and the loop would never end.
_LAST_STRAW = 10_000


@final
class _Filtered(cursors.FunctionCursor):
    """Asks a predicate about each element."""

    # Skipping must ask, too: only the predicate knows which elements count.
    sees_all = True

    def __init__(self, source: cursors.Cursor, predicate: Callable[..., Any]) -> None:
        super().__init__(source)
        self._predicate = predicate

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            wanted = count - len(found)
            seen = 0
            block = self._block(wanted)
            try:
                for element in block:
                    seen += 1
                    if ask_predicate(self._predicate, element):
                        found.append(element)
            except BaseException:
                # The elements after the one that raised are not lost.
                self._keep(block)
                raise
            if seen < wanted:
                break
        return found


def ask_predicate(predicate: Callable[..., Any], element: object) -> bool:
    """Returns the answer of a predicate about an element.

    Raises:
        ValueError: the predicate did not return one boolean.
    """
    answer = mapping.call(predicate, element)
    array = np.asarray(answer)
    if array.ndim or array.dtype != np.bool_:
        raise ValueError(
            "Invalid `predicate`. `predicate` must return a single boolean, received "
            f"{answer!r}."
        )
    return bool(array)


@final
class Filter(nodes.UnchangedElements):
    """The elements for which a predicate returns True."""

    predicate: Callable[..., Any]
    makes_new = None
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that asks the predicate about each element."""
        predicate = first_elements.watch_answers(self, self.predicate)
        return _Filtered(self.parent.cursor(), predicate)

    def __str__(self) -> str:
        return f"Filter({getattr(self.predicate, '__name__', 'predicate')})"


@final
class _TakeWhileCursor(cursors.Derived):
    """Stops at the first element for which a predicate returns False."""

    kept = ("over",)

    def __init__(self, source: cursors.Cursor, predicate: Callable[..., Any]) -> None:
        super().__init__(source)
        self._predicate, self._over = predicate, False

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not self._over:
            block = self._source.read(1)
            self._over = not len(block) or not ask_predicate(self._predicate, block[0])
            if not self._over:
                found.append(block[0])
        return found


@final
class TakeWhile(nodes.UnchangedElements):
    """The elements before the first for which a predicate returns False."""

    predicate: Callable[..., Any]
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that stops before that element."""
        return _TakeWhileCursor(self.parent.cursor(), self.predicate)


def _content(x: object) -> object:
    """Returns shape and content of an array as a value that can be hashed."""
    array = elements.as_array(x)
    # The bytes of an array of objects, as text is, are only addresses.
    is_text = array.dtype.kind == "O"
    return array.shape, repr(array.tolist()) if is_text else array.tobytes()


@final
class _UniqueCursor(cursors.UnaryCursor):
    """Passes on each element that was not seen before.

    The position is a number of elements of the source, which are read again to know
    them.
    """

    def __init__(self, source: cursors.Cursor) -> None:
        super().__init__(source)
        self._origin = self._source.get_state()
        self._history = cursors.PositionHistory(source, cursors.BLOCK)
        self._seen: set[Any] = set()

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            self._history.forget_before(self._history.read_so_far)
            block = self._history.read(1)
            if not len(block):
                break
            if self._is_new(block[0]):
                found.append(block[0])
        return found

    def _is_new(self, element: object) -> bool:
        """Whether an element was not seen before; from now on it was."""
        key = tuple(map(_content, elements.leaves(element)))
        before = len(self._seen)
        self._seen.add(key)
        return len(self._seen) > before

    def get_state(self) -> dict[str, Any]:
        passed = self._history.read_so_far
        behind = self._history.behind_failure()
        return {"passed": passed, "origin": self._origin, **behind}

    def set_state(self, state: dict[str, Any]) -> None:
        self._origin = state["origin"]
        self._history.return_to(cursors.history_state_at(self._origin))
        self._seen = set()
        for _, element in self._history.read_again(state["passed"], state):
            self._is_new(element)


@final
class UniqueElements(nodes.UnchangedElements):
    """The elements that did not come before, each once."""

    cardinality = nodes.UNKNOWN

    def __str__(self) -> str:
        return "Unique"

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that remembers the elements."""
        return _UniqueCursor(self.parent.cursor())


@final
class _IgnoreErrorsCursor(cursors.Derived):
    """Reads on after an exception."""

    def __init__(self, source: cursors.Cursor, log: bool) -> None:
        super().__init__(source)
        self._logs = log

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        failed_in_a_row = 0
        while len(found) < count:
            try:
                block = self._source.read(1)
            except Exception as e:
                failed_in_a_row += 1
                if failed_in_a_row > _LAST_STRAW:
                    raise
                if self._logs:
                    _log.warning("Ignored an element: %s: %s", type(e).__name__, e)
                continue
            failed_in_a_row = 0
            if not len(block):
                break
            found.append(block[0])
        return found


@final
class IgnoreErrors(nodes.UnchangedElements):
    """The elements whose reading raises nothing."""

    log: bool

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads on after an exception."""
        return _IgnoreErrorsCursor(self.parent.cursor(), self.log)

    @property
    def cardinality(self) -> int:
        """Returns `UNKNOWN`, except for an empty parent."""
        return 0 if self.parent.cardinality == 0 else nodes.UNKNOWN
