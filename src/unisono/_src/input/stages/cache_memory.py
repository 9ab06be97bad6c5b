"""`cache` in memory: keeps the elements of the first pass for later ones."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, final

from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.stages.selecting import Make


@final
class ElementStore:
    """The elements that a cache keeps, shared by every iterator of a dataset."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: list[Any] | None = None
        # The position of the source at which the pass began that filled the store.
        self.origin: dict[str, Any] | None = None

    def __getstate__(self) -> tuple[Any, Any]:
        # Worker processes get a copy; a lock cannot be pickled.
        return (self.kept, self.origin)

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self.kept, self.origin = state
        self.lock = threading.Lock()

    def fill(self, found: list[Any], origin: dict[str, Any] | None) -> None:
        """Keeps the elements of a pass, unless another iterator was faster."""
        with self.lock:
            if self.kept is None:
                self.kept, self.origin = found, origin

    def keep_only(self, origin: dict[str, Any]) -> bool:
        """Whether the store has the elements of a pass; drops those of another pass."""
        with self.lock:
            if self.kept is not None and self.origin != origin:
                self.kept = self.origin = None
            return self.kept is not None


@final
class _Cached(cursors.Cursor):
    """Fills the store on the first pass and reads from it afterwards.

    The position is a number of elements. Where the store is empty, as in another
    process, the elements before it are read again from where the pass began.
    """

    def __init__(self, make: Make, store: ElementStore) -> None:
        self._make, self._store = make, store
        self._source: cursors.Cursor | None = None
        self._origin: dict[str, Any] | None = None
        self._seen: list[Any] = []
        self._next = 0
        # A pass that lost an element to an exception must not fill the store.
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
        """Returns the stored elements; None if this pass began without them."""
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
        if not self._store.keep_only(state["origin"]):
            self.skip(state["next"])
        self._next = state["next"]

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None


def _freeze(element: Any) -> Any:
    """Makes the arrays read-only: a reader must not change what others will get."""
    return elements.map_leaves(elements.freeze, element)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Cache(nodes.Keeping):
    """Keeps the elements of the first pass in memory."""

    store: ElementStore
    # The arrays belong to the store, so no one may write into them.
    makes_new = False

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that fills the store or reads from it."""
        return _Cached(make, self.store)
