"""`cache` in memory: elements are kept after the first pass."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, final

from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.stages.selecting import Make


@final
class ElementStore:
    """Elements that were kept, shared by every iterator of a dataset."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: list[Any] | None = None
        # Where the pass began whose elements they are.
        self.origin: dict[str, Any] | None = None

    def __getstate__(self) -> tuple[Any, Any]:
        # For worker processes.
        return (self.kept, self.origin)

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self.kept, self.origin = state
        self.lock = threading.Lock()

    def fill(self, found: list[Any], origin: dict[str, Any] | None) -> None:
        """Keep elements, unless another iterator was faster."""
        with self.lock:
            if self.kept is None:
                self.kept, self.origin = found, origin

    def hold(self, origin: dict[str, Any]) -> bool:
        """Whether the elements of a pass are there; those of another are dropped."""
        with self.lock:
            if self.kept is not None and self.origin != origin:
                self.kept = self.origin = None
            return self.kept is not None


@final
class _Cached(cursors.Cursor):
    """Fills the store on the first pass and reads from it afterwards.

    The position is a number. Where the store is not there any more, what was before
    is read again from the position at which the pass began.
    """

    def __init__(self, make: Make, store: ElementStore) -> None:
        self._make, self._store = make, store
        self._source: cursors.Cursor | None = None
        self._origin: dict[str, Any] | None = None
        self._seen: list[Any] = []
        self._next = 0
        # What is missing some elements must not be taken for all of them.
        self._has_failed = False

    def _open(self) -> cursors.Cursor:
        if self._source is None:
            self._source = self._make()
            if self._origin is None:
                self._origin = self._source.get_state()
            else:
                self._source.set_state(self._origin)
        return self._source

    def read(self, count: int) -> Any:
        kept = self._stored_elements()
        if kept is None and self._next == len(self._seen):
            found = self._read_more(count)
            self._seen.extend(found)
            if len(found) < count and not self._has_failed:
                self._store.fill(self._seen, self._origin)
        else:
            kept = self._seen if kept is None else kept
            found = kept[self._next : self._next + count]
        self._next += len(found)
        return found

    def _read_more(self, count: int) -> list[Any]:
        try:
            return [_freeze(e) for e in self._open().read(count)]
        except BaseException:
            self._has_failed = True
            raise

    def _stored_elements(self) -> list[Any] | None:
        """What the store holds, unless this pass began before it was filled."""
        return self._store.kept if self._source is None else None

    def get_state(self) -> dict[str, Any]:
        if self._stored_elements() is not None:
            return {"next": self._next, "origin": self._store.origin}
        self._open()
        return {"next": self._next, "origin": self._origin}

    def set_state(self, state: dict[str, Any]) -> None:
        self.close()
        self._origin, self._seen, self._next = state["origin"], [], 0
        self._has_failed = False
        if not self._store.hold(state["origin"]):
            self.skip(state["next"])
        self._next = state["next"]

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None


def _freeze(element: Any) -> Any:
    """What is kept must not be changed by who iterates."""
    return elements.map_leaves(elements.frozen, element)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Cache(nodes.Keeping):
    """Elements kept after the first pass."""

    store: ElementStore
    # What is kept must not be changed.
    makes_new = False

    def selecting(self, make: Make) -> cursors.Cursor:
        """Kept in memory."""
        return _Cached(make, self.store)
