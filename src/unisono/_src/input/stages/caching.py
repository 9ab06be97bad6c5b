"""`cache`: keeps the elements of the first pass in memory or in a file."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Sequence
from typing import Any, final

from unisono._src.foundation import errors, printable
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.sources import iterables
from unisono._src.input.stages import argument_checks, element_files
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

    def __init__(self, make: Make, store: ElementStore, size: int) -> None:
        # `size` is the number of elements, if that is known; otherwise negative.
        self._make, self._store, self._size = make, store, size
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

    def read(self, count: int) -> Sequence[Any]:
        kept = self._stored_elements()
        if kept is None and self._next == len(self._seen):
            found = self._read_more(count)
            self._seen.extend(found)
            # As in TensorFlow, a reader that takes the last element need not ask for
            # one more, as a `for` loop does, to have the pass kept.
            is_over = len(found) < count or len(self._seen) == self._size
            if is_over and not self._has_failed:
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


def _freeze(element: object) -> object:
    """Makes the arrays read-only: a reader must not change what others will get."""
    return elements.map_leaves(elements.freeze, element)


@final
class Cache(nodes.AllElements):
    """Keeps the elements of the first pass in memory."""

    store: ElementStore
    # The arrays belong to the store, so no one may write into them.
    makes_new = False

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that fills the store or reads from it."""
        # Another library's loader may have more elements than its length says.
        is_sure = not any(isinstance(n, iterables.Loader) for n in nodes.walk(self))
        size = self.cardinality if is_sure else nodes.UNKNOWN
        return _Cached(make, self.store, size)


_ENDING = ".cache"


def check_name(filename: str) -> None:
    """Raises `ValueError` if the files of a cache would have too long names."""
    partial = f"{_ENDING}.{secrets.token_hex(8)}.partial"
    argument_checks.check_name_lengths(filename, "filename", partial)


@final
class _FileCacheWriter(cursors.Cursor):
    """Passes elements on and writes them; the file appears when it is complete."""

    # Of an object whose `__init__` did not end, too.
    _file: element_files.ElementWriter | None = None

    def __init__(self, node: FileCache) -> None:
        self._node = node
        self._source = node.parent.cursor()
        self._origin = self._source.get_state()
        self._next = 0
        self._over = False
        # A pass that lost an element to an exception must not become the file.
        self._has_failed = False

    def read(self, count: int) -> Sequence[Any]:
        if self._over:
            return []
        if self._file is None and not self._has_failed:
            # Several may fill at once, and nobody may guess the name.
            aside = f"{self._node.path}.{secrets.token_hex(8)}.partial"
            try:
                self._file = element_files.ElementWriter(aside)
            except FileNotFoundError as e:
                folder = os.path.dirname(aside)
                raise errors.NotFoundError(
                    f"Cannot keep a dataset in {self._node.path}: there is no folder "
                    f"{folder}. Make it first."
                ) from e
        try:
            found = self._source.read(count)
        except BaseException:
            self._has_failed = True
            self._drop()
            raise
        if self._file is not None:
            for element in found:
                self._file.write(element)
        self._next += len(found)
        if len(found) < count:
            self._finish()
        return found

    def _finish(self) -> None:
        self._over = True
        if self._file is not None:
            self._file.finish()
            os.replace(self._file.path, self._node.path)
            self._file = None

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next, "origin": self._origin}

    def set_state(self, state: dict[str, Any]) -> None:
        self._drop()
        # A position may come from the reader of the finished file, which has no origin;
        # then this pass is written from its own beginning. The other way round, the
        # reader takes no notice of an origin.
        self._origin = state.get("origin", self._origin)
        self._source.set_state(self._origin)
        self._next, self._over, self._has_failed = 0, False, False
        self.skip(state["next"])

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.discard()

    def close(self) -> None:
        self._drop()
        self._source.close()

    def __del__(self) -> None:
        self._drop()


@final
class FileCache(nodes.SameCount, nodes.UnchangedElements):
    """Keeps the elements of the first pass in a file."""

    filename: str
    keeps_spec = True

    @property
    def path(self) -> str:
        """Returns the path of the file."""
        return f"{self.filename}{_ENDING}"

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads the file, or writes it if there is none."""
        if os.path.exists(self.path):
            return element_files.ElementReader(
                self.path,
                like=lambda: self.spec,
                check=self._check,
                advice="Remove it, and the next pass writes it anew.",
            )
        return _FileCacheWriter(self)

    def _check(self, element: object) -> None:
        """Raises `InvalidArgumentError` if an element cannot be of this dataset."""
        if not nodes.tells_spec(self):
            return
        pairs = zip(elements.leaves(self.spec), elements.leaves(element), strict=False)
        for spec, x in pairs:
            found = elements.as_array(x).dtype
            if found != spec.dtype:
                raise errors.InvalidArgumentError(
                    f"{self.path} was made by another dataset: it has elements of type "
                    f"{found} where {spec.dtype} was expected. Remove it, or choose "
                    "another filename."
                )

    def __str__(self) -> str:
        return f"Cache({printable.escape(str(self.filename))})"
