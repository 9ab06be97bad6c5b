"""Notes the first elements of sources while a dataset is read, to compare workers.

Workers that share a dataset must read the same elements in the same order. What they
read first is noted where it comes from the source, before a function of the program has
changed it: functions may draw random numbers, and each worker draws its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import ambient
from unisono._src.input.plan import cursors, elements

Predicate = Callable[..., Any]
# So many elements of each pass over a source are noted, and so many answers of each
# predicate, which tell less.
_ELEMENTS, _ANSWERS = 16, 64
# So many passes are noted, of all sources and predicates together.
_PASSES = 16
# Of a larger array only a part is looked at, spread over all of it.
_MOST_BYTES = 1 << 16
# Along an axis of an array that is looked at in part, at least so many places are.
_LEAST_PLACES = 16
# The lengths of what is shown of an element.
_SHOWN_NUMBERS, _SHOWN_CHARACTERS = 4, 80


@final
class PassRecord:
    """What was noted of one pass over a source, or of a predicate in one pass.

    Attributes:
        source: the source or the stage, in words.
        seen: a checksum and a short text about some elements, by their number.
        end: how many elements the source has, if that was seen.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.seen: dict[int, tuple[int, str]] = {}
        self.end: int | None = None


@final
class Recorder:
    """Notes what the sources of one iterator give first, and what predicates answer.

    Args:
        plan: the nodes of the plan of which something is noted. Their numbers are the
            same on all workers.
        is_common: whether all workers read the same everywhere. Then the nodes of
            datasets that functions of the program make are noted, too.
        has_names: whether texts are names of files, of which the folder is left out.
    """

    def __init__(self, plan: Sequence[Any], is_common: bool, has_names: bool) -> None:
        self._numbers = {id(node): str(i) for i, node in enumerate(plan)}
        self._is_common, self._has_names = is_common, has_names
        self.passes: dict[str, PassRecord] = {}
        self._counts: dict[str, int] = {}

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Notes what sources give that this thread begins to read in the block."""
        outer, _thread.recorder = _thread.recorder, self
        try:
            yield
        finally:
            _thread.recorder = outer

    def watch(self, node: object, cursor: cursors.Cursor) -> cursors.Cursor:
        """Returns a cursor over the same elements that notes the first of them."""
        noted = self._begin(node)
        return (
            cursor if noted is None else _RecordedCursor(cursor, noted, self._has_names)
        )

    def watch_answers(self, node: object, predicate: Predicate) -> Predicate:
        """Returns a predicate with the same answers that notes the first of them."""
        noted = self._begin(node)
        if noted is None:
            return predicate

        @functools.wraps(predicate)
        def ask(*given: object) -> object:
            answer = predicate(*given)
            number = len(noted.seen)
            if number < _ANSWERS:
                is_kept = bool(np.any(answer))
                noted.seen[number] = (is_kept, "it kept" if is_kept else "it left out")
            return answer

        return ask

    def _begin(self, node: object) -> PassRecord | None:
        """Returns where to note a pass over a node; None if it is not noted."""
        number = self._numbers.get(id(node), "made" if self._is_common else "")
        if not number or len(self.passes) == _PASSES:
            return None
        count = self._counts[number] = self._counts.get(number, -1) + 1
        noted = self.passes[f"{number}.{count}"] = PassRecord(str(node))
        return noted


@final
class _Thread(ambient.PerThread):
    """The recorder of the cursors that a thread makes; None if nothing is noted."""

    recorder: Recorder | None = None


_thread = _Thread()


def watch(node: object, cursor: cursors.Cursor) -> cursors.Cursor:
    """Returns the cursor of a source; it is watched if this thread has a recorder."""
    recorder = _thread.recorder
    return cursor if recorder is None else recorder.watch(node, cursor)


def watch_answers(node: object, predicate: Predicate) -> Predicate:
    """Returns the predicate of a stage, watched if this thread has a recorder."""
    recorder = _thread.recorder
    return predicate if recorder is None else recorder.watch_answers(node, predicate)


def carry_to_thread(work: Callable[[], None]) -> Callable[[], None]:
    """Returns the work of a new thread, which notes what this thread would."""
    recorder = _thread.recorder
    if recorder is None:
        return work

    def run() -> None:
        with recorder.open():
            work()

    return run


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Notes nothing in the block, which reads a sample."""
    outer, _thread.recorder = _thread.recorder, None
    try:
        yield
    finally:
        _thread.recorder = outer


@final
class _RecordedCursor(cursors.UnaryCursor):
    """The elements of a source, of which the first are noted."""

    def __init__(
        self, source: cursors.Cursor, noted: PassRecord, has_names: bool
    ) -> None:
        super().__init__(source)
        self._noted: PassRecord | None = noted
        self._has_names = has_names
        self._next = 0

    def read(self, count: int) -> Sequence[Any]:
        if self._noted is None:
            return self._source.read(count)
        try:
            found = self._source.read(count)
        except BaseException:
            # How many elements came before it is not known.
            self._noted = None
            raise
        self._note(self._noted, found, count)
        return found

    def _note(self, noted: PassRecord, found: Sequence[Any], count: int) -> None:
        room = _ELEMENTS - len(noted.seen)
        for number, element in enumerate(found[:room], self._next):
            mark = checksum(element, self._has_names)
            noted.seen[number] = (mark, describe(element, mark))
        self._next += len(found)
        if len(found) < count:
            noted.end = self._next
        if len(noted.seen) == _ELEMENTS or noted.end is not None:
            self._noted = None

    def skip(self, count: int) -> int:
        passed = 0
        noted, source = self._noted, self._source
        if noted is not None and count and isinstance(source, cursors.IteratorCursor):
            # It would be read anyway. Other sources are not read for this.
            passed = len(self.read(min(count, _ELEMENTS - len(noted.seen))))
        more = source.skip(count - passed) if count > passed else 0
        self._next += more
        return passed + more

    def get_state(self) -> dict[str, Any]:
        return self._source.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self._source.set_state(state)
        place = state.get("passed", state.get("next"))
        if isinstance(place, int):
            self._next = place
        else:
            # Without the numbers of elements those of workers cannot be compared.
            self._noted = None


def checksum(element: object, has_names: bool = False) -> int:
    """Returns a number that differs between elements; of large ones, of a part.

    Args:
        element: a structure of arrays.
        has_names: whether texts are names of files, of which the folder is left out.
    """
    found = 0
    for path, leaf in elements.paths(element):
        if elements.is_dataset(leaf):
            continue
        array = elements.as_array(leaf)
        found = zlib.crc32(f"{path} {array.dtype} {array.shape}".encode(), found)
        part = np.ascontiguousarray(_spread_part(array))
        if part.dtype.kind != "O":
            found = zlib.crc32(part.tobytes(), found)
            continue
        for text in part.ravel():
            name = os.path.basename(text) if has_names else text
            found = zlib.crc32(name if isinstance(name, bytes) else b"", found)
    return found


def _spread_part(array: np.ndarray) -> np.ndarray:
    """Returns a view of a part of a large array, spread over all of it."""
    for axis in range(array.ndim):
        times = array.nbytes // _MOST_BYTES
        if not times:
            break
        step = max(1, min(array.shape[axis] // _LEAST_PLACES, times))
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    return array


def describe(element: object, mark: int) -> str:
    """Returns the first numbers or texts of an element, and its checksum."""
    return f"{shorten(element)} (checksum {mark:08x})"


def shorten(element: object) -> str:
    """Returns the first numbers or texts of an element, for a message.

    >>> shorten({"a": np.arange(9), "b": b"text"})
    "['a']: [0, 1, 2, 3, ...], ['b']: b'text'"
    """
    parts = []
    for path, leaf in elements.paths(element):
        array = elements.as_array(leaf)
        first = array.flat[:_SHOWN_NUMBERS].tolist()
        if array.ndim:
            more = ", ..." if array.size > _SHOWN_NUMBERS else ""
            text = f"[{', '.join(map(_cut, first))}{more}]"
        else:
            text = _cut(first[0])
        parts.append(f"{path}: {text}" if path else text)
    return ", ".join(parts)


def _cut(x: object) -> str:
    text = repr(x)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return text[:_SHOWN_CHARACTERS] + "..."
