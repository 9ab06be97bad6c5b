"""Cursors: streams of elements whose position can be saved and set again."""

from __future__ import annotations

import abc
import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, final

# The number of elements to read at once where nothing else decides it.
BLOCK = 256


# What every stage relies on: a read that returns fewer elements than it was asked for
# has met the end, so that nobody reads again to be sure. The element at which a read
# raises is lost, and the next read goes on behind it, because `ignore_errors`, and
# programs that catch the exception, read on. One thread reads at a time; only
# `ReadAhead` may have several readers.
class Cursor(abc.ABC):
    """A stream of elements whose position can be saved and set; abstract.

    The methods `get_state`, `set_state` and `close` are those of Grain's iterators.
    A state is plain data: dicts, lists, numbers, text, None.
    """

    @abc.abstractmethod
    def read(self, count: int) -> Sequence[Any]:
        """Returns the next `count` elements; fewer only at the end of the stream."""

    def skip(self, count: int) -> int:
        """Skips up to `count` elements and returns how many it skipped."""
        passed = 0
        while passed < count:
            wanted = min(BLOCK, count - passed)
            got = len(self.read(wanted))
            passed += got
            if got < wanted:
                break
        return passed

    def units(self, found: Sequence[Any]) -> int:
        """Returns how far reading `found` moved the position, as `skip` counts."""
        return len(found)

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Returns the position as plain data."""

    @abc.abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a position that `get_state` returned."""

    def cancel(self) -> None:  # noqa: B027
        """Stops waiting for other workers; another thread may be reading meanwhile."""

    @abc.abstractmethod
    def close(self) -> None:
        """Releases threads, processes and files; nothing can be read afterwards."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> object:
        try:
            found = self.read(1)
        except StopIteration as e:
            # A `for` loop would take it for the end, and the rest would be missing.
            raise stop_iteration_error("The source") from e
        if not found:
            raise StopIteration
        return found[0]


@final
class Count(Cursor):
    """The integers from 0 up to `length`, without `length` itself."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._next = 0

    def read(self, count: int) -> range:
        """Returns a range, so that a reader can see that it has no gaps."""
        start = self._next
        self._next = min(start + count, self.length)
        return range(start, self._next)

    def skip(self, count: int) -> int:
        """Skips integers at no cost."""
        return len(self.read(count))

    def get_state(self) -> dict[str, Any]:
        """Returns the next integer and the length."""
        return {"next": self._next, "of": self.length}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at the saved integer.

        Raises:
            ValueError: the saved stream was longer. Streams that read from this one may
                hold integers that do not exist here.
        """
        if state["of"] > self.length:
            raise ValueError(
                f"The position was saved from a dataset of {state['of']} elements, and "
                f"this one has {self.length}. Continue with the same data."
            )
        self._next = state["next"]

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


class UnaryCursor(Cursor, abc.ABC):
    """A stream that reads from one other stream; abstract."""

    def __init__(self, source: Cursor) -> None:
        self._source = source

    def cancel(self) -> None:
        """Cancels the source."""
        self._source.cancel()

    def close(self) -> None:
        """Closes the source."""
        self._source.close()


class SamePosition(UnaryCursor, abc.ABC):
    """A stream whose position is that of its source; abstract."""

    def skip(self, count: int) -> int:
        """Skips in the units of the source."""
        return self._source.skip(count)

    def get_state(self) -> dict[str, Any]:
        """Returns the position in the source."""
        return self._source.get_state()


class Derived(UnaryCursor, abc.ABC):
    """A stream whose state is that of its source and a few values; abstract.

    Attributes:
        kept: the names of these values. Each is an attribute with a leading underscore.
    """

    kept: ClassVar[tuple[str, ...]] = ()

    def get_state(self) -> dict[str, Any]:
        """Returns the position in the source and the values named in `kept`."""
        own = {name: getattr(self, f"_{name}") for name in self.kept}
        return {**own, "source": self._source.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets the position in the source and the values named in `kept`."""
        self._source.set_state(state["source"])
        for name in self.kept:
            setattr(self, f"_{name}", state[name])


class IteratorCursor(Cursor):
    """The elements of any Python iterator.

    The position is a count of elements. To go to a position, the stream starts a new
    iterator and reads up to there.

    Args:
        elements: returns a new iterator over the elements, from the first on.
    """

    def __init__(self, elements: Callable[[], Iterable[Any]]) -> None:
        self._elements = elements
        self._iterator: Iterator[Any] | None = None
        self._passed = self._failed = 0

    def read(self, count: int) -> list[Any]:
        """Returns the next elements."""
        if self._iterator is None:
            self._iterator = iter(self._elements())
        found: list[Any] = []
        try:
            # `extend` keeps the elements that came before an exception, so they are
            # counted even though this call raises.
            found.extend(itertools.islice(self._iterator, count))
        except Exception:
            # It counts like an element, since `set_state` meets it again on its way.
            # A KeyboardInterrupt is none of the iterator's, and does not count.
            self._failed += 1
            raise
        finally:
            self._passed += len(found)
        return found

    def get_state(self) -> dict[str, Any]:
        """Returns how many elements were read, and how many reads raised."""
        failed = {"failed": self._failed} if self._failed else {}
        return {"passed": self._passed, **failed}

    def set_state(self, state: dict[str, Any]) -> None:
        """Starts a new iterator and reads up to the position.

        Raises:
            ValueError: the iterator ends before the position.
        """
        self.close()
        self._passed = self._failed = 0
        failed = state.get("failed", 0)
        while wanted := state["passed"] + failed - self._passed - self._failed:
            met = self._failed
            try:
                if not self.read(min(wanted, BLOCK)):
                    break
            except Exception:
                # An element that raised before the position was saved raises again
                # here. Anything beyond that is a new failure, or one that is not of
                # an element: `read` counts only those.
                if not met < self._failed <= failed:
                    raise
        if self._passed < state["passed"]:
            raise _too_few_error(state["passed"], self._passed)

    def close(self) -> None:
        """Closes the iterator, if it has a `close`."""
        iterator, self._iterator = self._iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def history_state_at(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of a `PositionHistory` that is at a position of its source."""
    # `source` is a position of the source, `pass` how many elements to skip from there,
    # `index` the number of the next element in its pass. Numbers go on after a restore,
    # because stages save the numbers of elements that they hold. Saved positions have
    # this state under the key `trail`.
    return {"source": state, "pass": 0, "index": 0}


# Reading elements again gives up after this many exceptions in a row: a source that
# raises for ever would otherwise be read for ever.
_MOST_FAILURES = 1000


def _too_few_error(wanted: int, found: int) -> ValueError:
    """Returns the error for a position behind the end of the data."""
    return ValueError(
        "The position was saved from a dataset with more elements than this one has: "
        f"{wanted} were read, here are {found}. Continue with the same data."
    )


def stop_iteration_error(who: str) -> RuntimeError:
    """Returns the error for a user's `StopIteration`, which must not end the data."""
    return RuntimeError(
        f"{who} raised StopIteration, as `next` does on an iterator without more "
        "elements. It does not end a dataset."
    )


@final
class _UnknownPosition:
    """Takes the place of a position when the source raised instead of telling it."""

    def __init__(self, exception: Exception) -> None:
        self.exception = exception


@final
class PositionHistory:
    """Remembers positions of a source, to tell where any recent element began.

    Some streams read ahead of what they return: a shuffle buffer, a thread. Their
    state is an earlier position of the source, and how many elements to skip from
    there.

    Args:
        source: the stream to read.
        every: remember a position after this many elements; can be changed later.
    """

    def __init__(self, source: Cursor, every: int) -> None:
        self._source = source
        self.every = every
        self._marks: collections.deque[tuple[int, Any]] = collections.deque()
        self.read_so_far = 0
        # Whether the last read raised.
        self._has_failed = False

    def read(self, count: int) -> Sequence[Any]:
        """Reads from the source, and remembers its position now and then."""
        if not self._marks or self.read_so_far - self._marks[-1][0] >= self.every:
            self._mark()
        try:
            found = self._source.read(count)
        except BaseException as e:
            # The source may have moved past elements that were never counted, so
            # counting from an earlier mark would be wrong from here on.
            self._mark()
            self._has_failed = True
            if isinstance(e, StopIteration):
                raise stop_iteration_error("The source") from e
            raise
        self._has_failed = False
        self.read_so_far += self._source.units(found)
        return found

    def _mark(self) -> None:
        """Remembers the present position of the source."""
        try:
            state: Any = self._source.get_state()
        except Exception as e:
            # The elements can be read all the same. The error comes up only if this
            # position is asked for.
            state = _UnknownPosition(e)
        self._marks.append((self.read_so_far, state))

    @property
    def has_marks(self) -> bool:
        """Whether any position is remembered."""
        return bool(self._marks)

    def skip(self, count: int) -> int:
        """Skips elements of the source and returns how many it skipped."""
        passed = self._source.skip(count)
        self.read_so_far += passed
        return passed

    def forget_failure(self) -> object:
        """Takes back the position behind an exception, and returns it.

        It stays out until the exception has reached the reader; see `remember`.
        """
        # `read` has just added it, as the last thing before it raised.
        return self._marks.pop()

    def remember(self, mark: Any) -> None:
        """Puts back the position that `forget_failure` returned."""
        self._marks.append(mark)

    def behind_failure(self) -> dict[str, Any]:
        """Returns the position of the source if it is behind what raised, else {}."""
        return {"behind": self._source.get_state()} if self._has_failed else {}

    def read_again(self, end: int, state: dict[str, Any]) -> Iterator[tuple[int, Any]]:
        """Yields the elements up to number `end` once more, with their numbers.

        Args:
            end: the number of the next element.
            state: has what `behind_failure` returned there.

        Raises:
            ValueError: the source has fewer elements than the first time.
        """
        failed = 0
        while self.read_so_far < end:
            number = self.read_so_far
            try:
                found = self.read(1)
            except Exception:
                # It raised the first time as well, and was not counted.
                failed += 1
                if failed > _MOST_FAILURES:
                    raise
                continue
            if not len(found):
                raise _too_few_error(end, number)
            failed = 0
            yield number, found[0]
        if "behind" in state:
            # What raised after the last element was told, and is not met again.
            self._source.set_state(state["behind"])
            self._mark()
            self._has_failed = True

    def position_before(self, index: int) -> dict[str, Any]:
        """Returns the position before the element that was read as number `index`.

        Raises:
            RuntimeError: that position is forgotten, or the source could not tell it.
        """
        if index == self.read_so_far:
            return {"source": self._source.get_state(), "pass": 0, "index": index}
        return self.remembered_position(index)

    def remembered_position(self, index: int) -> dict[str, Any]:
        """Returns what `position_before` returns, without asking the source.

        Another thread may be reading the source.
        """
        # The copy keeps the list whole while another thread adds marks.
        marks = [m for m in list(self._marks) if m[0] <= index]
        if not marks:
            raise RuntimeError("This position is too far back: it has been forgotten.")
        start, state = marks[-1]
        if isinstance(state, _UnknownPosition):
            raise RuntimeError(
                "The position cannot be told, because the source did not tell its own."
            ) from state.exception
        return {"source": state, "pass": index - start, "index": index}

    def forget_before(self, index: int) -> None:
        """Forgets the positions that only elements before `index` need."""
        # The last mark at or before `index` stays: it is what `index` counts from.
        while len(self._marks) > 1 and self._marks[1][0] <= index:
            self._marks.popleft()

    def return_to(self, state: dict[str, Any]) -> None:
        """Continues at a position that `position_before` returned.

        Raises:
            ValueError: the source ends before that position.
        """
        self._marks.clear()
        self._has_failed = False
        self._source.set_state(state["source"])
        self.read_so_far = state["index"] - state["pass"]
        passed = self._source.skip(state["pass"])
        if passed < state["pass"]:
            raise _too_few_error(state["index"], self.read_so_far + passed)
        self.read_so_far += passed
        self._mark()


# `FunctionCursor` remembers a position after this many elements, in case a function
# raises.
_CALLS_PER_MARK = 4096


class FunctionCursor(UnaryCursor, abc.ABC):
    """A stream that calls a user's function with elements of a source; abstract.

    Elements are read in blocks. When the function raises, the elements of the block
    that it has not seen are kept for the next read, so that only the one that raised
    is lost.

    Attributes:
        sees_all: whether the function must also see the elements that are skipped.
    """

    sees_all: ClassVar[bool] = False

    def __init__(self, source: Cursor) -> None:
        super().__init__(source)
        self._history = PositionHistory(source, _CALLS_PER_MARK)
        self._unseen: Sequence[Any] = ()

    def _block(self, count: int) -> Iterator[Any]:
        """Returns up to `count` elements.

        If the function raises for one of them, pass the rest to `_keep`.
        """
        unseen = self._unseen
        if not unseen:
            self._history.forget_before(self._history.read_so_far)
            return iter(self._history.read(count))
        more = self._history.read(count - len(unseen)) if len(unseen) < count else ()
        # Only after the read: if that raises, the unseen elements must stay.
        self._unseen = unseen[count:]
        return itertools.chain(unseen[:count], more)

    def _keep(self, left: Iterator[Any]) -> None:
        """Keeps the elements that the function has not seen for the next read."""
        self._unseen = [*left, *self._unseen]

    def skip(self, count: int) -> int:
        """Skips without a call, unless the function must see every element."""
        if self.sees_all:
            return super().skip(count)
        passed = min(count, len(self._unseen))
        self._unseen = self._unseen[passed:]
        return passed + self._history.skip(count - passed) if passed < count else passed

    def get_state(self) -> dict[str, Any]:
        """Returns the position of the next element that the function has not seen."""
        if not self._unseen:
            return {"source": self._source.get_state()}
        first = self._history.read_so_far - len(self._unseen)
        return {"trail": self._history.position_before(first)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets the position in the source."""
        self._unseen = ()
        self._history.return_to(state.get("trail") or history_state_at(state["source"]))
