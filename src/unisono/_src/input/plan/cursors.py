"""Positions in a stream that can be saved: what a dataset becomes when iterated."""

from __future__ import annotations

import abc
import collections
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, final

# How many elements are read at once where nothing else says.
BLOCK = 256


class Cursor(abc.ABC):
    """A stream of elements, with a position that can be saved and set; abstract.

    The methods `get_state`, `set_state` and `close` are those of Grain's iterators.
    A state is plain data: dicts, lists, numbers, text, None.
    """

    @abc.abstractmethod
    def read(self, count: int) -> Sequence[Any]:
        """The next `count` elements; fewer only when the stream is over."""

    def skip(self, count: int) -> int:
        """Pass over `count` elements; returns how many there were."""
        passed = 0
        while passed < count:
            wanted = min(BLOCK, count - passed)
            got = len(self.read(wanted))
            passed += got
            if got < wanted:
                break
        return passed

    def units(self, found: Sequence[Any]) -> int:
        """How far reading `found` moved the position, in what `skip` counts."""
        return len(found)

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """The position, as plain data."""

    @abc.abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a position that `get_state` gave."""

    def cancel(self) -> None:  # noqa: B027
        """Wait for no one any more. Another thread may be reading."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give back threads, processes and files; no reading afterwards."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            found = self.read(1)
        except StopIteration as e:
            raise no_end("What is read") from e
        if not found:
            raise StopIteration
        return found[0]


@final
class Count(Cursor):
    """The integers from 0 to `length`."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._next = 0

    def read(self, count: int) -> range:
        """A range, so that a reader can see that it has no gaps."""
        start = self._next
        self._next = min(start + count, self.length)
        return range(start, self._next)

    def skip(self, count: int) -> int:
        """Costs nothing."""
        return len(self.read(count))

    def get_state(self) -> dict[str, Any]:
        """The next integer."""
        return {"next": self._next, "of": self.length}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at an integer.

        Raises:
            ValueError: there were more when the position was saved. Streams that read
                from this one may hold integers that do not exist.
        """
        if state["of"] > self.length:
            raise ValueError(
                f"The position was saved from a dataset of {state['of']} elements, and "
                f"this one has {self.length}. Continue with the same data."
            )
        self._next = state["next"]

    def close(self) -> None:
        """Nothing to give back."""


class OfSource(Cursor, abc.ABC):
    """A stream made from one other; abstract."""

    def __init__(self, source: Cursor) -> None:
        self._source = source

    def cancel(self) -> None:
        """Cancel the source."""
        self._source.cancel()

    def close(self) -> None:
        """Close the source."""
        self._source.close()


class Derived(OfSource, abc.ABC):
    """A stream whose position is that of its source, and a few values; abstract.

    Attributes:
        kept: the names of these values, which are attributes with an underscore.
    """

    kept: ClassVar[tuple[str, ...]] = ()

    def get_state(self) -> dict[str, Any]:
        """The position in the source, and what is kept."""
        own = {name: getattr(self, f"_{name}") for name in self.kept}
        return {**own, "source": self._source.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the position in the source, and what is kept."""
        self._source.set_state(state["source"])
        for name in self.kept:
            setattr(self, f"_{name}", state[name])


class Iterated(Cursor):
    """Any Python iterator; its position is a count, and going back is not possible.

    Args:
        elements: gives an iterator over the elements, from the first on.
    """

    def __init__(self, elements: Any) -> None:
        self._elements = elements
        self._iterator: Iterator[Any] | None = None
        self._passed = self._failed = 0

    def read(self, count: int) -> list[Any]:
        """The next elements."""
        if self._iterator is None:
            self._iterator = iter(self._elements())
        found: list[Any] = []
        try:
            found.extend(itertools.islice(self._iterator, count))
        except Exception:
            self._failed += 1
            raise
        finally:
            self._passed += len(found)
        return found

    def get_state(self) -> dict[str, Any]:
        """How many elements were read, and how often there was an exception."""
        failed = {"failed": self._failed} if self._failed else {}
        return {"passed": self._passed, **failed}

    def set_state(self, state: dict[str, Any]) -> None:
        """Start again and read up to the position."""
        self.close()
        self._passed = self._failed = 0
        failed = state.get("failed", 0)
        while wanted := state["passed"] + failed - self._passed - self._failed:
            met = self._failed
            try:
                if not self.read(min(wanted, BLOCK)):
                    break
            except Exception:
                # Only as often as the first time, and only those of elements.
                if not met < self._failed <= failed:
                    raise
        if self._passed < state["passed"]:
            raise _fewer(state["passed"], self._passed)

    def close(self) -> None:
        """Close the iterator, if it can be closed."""
        iterator, self._iterator = self._iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def at(state: Any) -> dict[str, Any]:
    """What a trail would say of a position that its source gave."""
    return {"source": state, "pass": 0, "index": 0}


# So many exceptions in a row are met when elements are read again.
_FAILURES = 1000


def _fewer(wanted: int, found: int) -> ValueError:
    return ValueError(
        "The position was saved from a dataset with more elements than this one has: "
        f"{wanted} were read, here are {found}."
    )


def no_end(who: str) -> RuntimeError:
    """For a `StopIteration` that is no end of the data, but would be taken for it."""
    return RuntimeError(
        f"{who} raised StopIteration, as `next` does on an iterator without more "
        "elements. It does not end a dataset."
    )


@final
class _Untold:
    """Stands for a position that a source could not tell."""

    def __init__(self, exception: Exception) -> None:
        self.exception = exception


@final
class Trail:
    """Remembers positions of a source, to tell where any recent element began.

    Some streams read ahead of what they give out: a shuffle buffer, a thread. Their
    state is a position of the source a little further back, and how many elements to
    pass over from there.

    Args:
        source: what is read.
        every: a position is remembered at this distance; can be changed.
    """

    def __init__(self, source: Cursor, every: int) -> None:
        self._source = source
        self.every = every
        self._marks: collections.deque[tuple[int, Any]] = collections.deque()
        self.read_so_far = 0

    def read(self, count: int) -> Sequence[Any]:
        """Read from the source."""
        if not self._marks or self.read_so_far - self._marks[-1][0] >= self.every:
            self._mark()
        try:
            found = self._source.read(count)
        except BaseException as e:
            # It may have passed over something that was not counted.
            self._mark()
            if isinstance(e, StopIteration):
                raise no_end("What is read") from e
            raise
        self.read_so_far += self._source.units(found)
        return found

    def _mark(self) -> None:
        try:
            state: Any = self._source.get_state()
        except Exception as e:
            # Reading is possible all the same.
            state = _Untold(e)
        self._marks.append((self.read_so_far, state))

    @property
    def has_marks(self) -> bool:
        """Whether some position is remembered."""
        return bool(self._marks)

    def skip(self, count: int) -> int:
        """Pass over elements of the source; returns how many there were."""
        passed = self._source.skip(count)
        self.read_so_far += passed
        return passed

    def forget_failure(self) -> Any:
        """Take back the position behind an exception, until someone has seen that."""
        return self._marks.pop()

    def remember(self, mark: Any) -> None:
        """Put back what `forget_failure` took."""
        self._marks.append(mark)

    def read_again(self, end: int) -> Iterator[tuple[int, Any]]:
        """The elements up to number `end`, which were read before, with their numbers.

        Raises:
            ValueError: there are fewer.
        """
        failed = 0
        while self.read_so_far < end:
            number = self.read_so_far
            try:
                found = self.read(1)
            except Exception:
                # It did so the first time, and was not counted.
                failed += 1
                if failed > _FAILURES:
                    raise
                continue
            if not len(found):
                raise _fewer(end, number)
            failed = 0
            yield number, found[0]

    def before(self, index: int) -> dict[str, Any]:
        """The position before the element that was read as number `index`."""
        if index == self.read_so_far:
            return {"source": self._source.get_state(), "pass": 0, "index": index}
        return self.remembered(index)

    def remembered(self, index: int) -> dict[str, Any]:
        """As `before`, without a look at the source, which another thread may read."""
        marks = [m for m in list(self._marks) if m[0] <= index]
        if not marks:
            raise RuntimeError("This position is too far back to be told any more.")
        start, state = marks[-1]
        if isinstance(state, _Untold):
            raise RuntimeError(
                "The position cannot be told: what is read does not tell its own."
            ) from state.exception
        return {"source": state, "pass": index - start, "index": index}

    def forget_before(self, index: int) -> None:
        """Elements before `index` will not be asked for any more."""
        while len(self._marks) > 1 and self._marks[1][0] <= index:
            self._marks.popleft()

    def return_to(self, state: dict[str, Any]) -> None:
        """Continue at a position that `before` gave."""
        self._marks.clear()
        self._source.set_state(state["source"])
        self.read_so_far = state["index"] - state["pass"]
        passed = self._source.skip(state["pass"])
        if passed < state["pass"]:
            raise _fewer(state["index"], self.read_so_far + passed)
        self.read_so_far += passed
        self._mark()


# A position is remembered every so many elements, in case a function raises.
_CALLS = 4096


class Called(Cursor, abc.ABC):
    """Calls a user's function with elements of a source; abstract.

    Elements are read in blocks. When the function raises, those of the block that it
    did not see are kept for the next read, so that only what raised is missing.

    Attributes:
        sees_all: whether the function must see also what is passed over.
    """

    sees_all: ClassVar[bool] = False

    def __init__(self, source: Cursor) -> None:
        self._source = source
        self._trail = Trail(source, _CALLS)
        self._unseen: Sequence[Any] = ()

    def _block(self, count: int) -> Iterator[Any]:
        """Up to `count` elements. Give what is left of it to `_keep` if one raises."""
        unseen = self._unseen
        if not unseen:
            self._trail.forget_before(self._trail.read_so_far)
            return iter(self._trail.read(count))
        more = self._trail.read(count - len(unseen)) if len(unseen) < count else ()
        self._unseen = unseen[count:]
        return itertools.chain(unseen[:count], more)

    def _keep(self, left: Iterator[Any]) -> None:
        """Elements that were not seen."""
        self._unseen = [*left, *self._unseen]

    def skip(self, count: int) -> int:
        """Without a call, unless the function must see all."""
        if self.sees_all:
            return super().skip(count)
        passed = min(count, len(self._unseen))
        self._unseen = self._unseen[passed:]
        return passed + self._trail.skip(count - passed) if passed < count else passed

    def get_state(self) -> dict[str, Any]:
        """The position in the source."""
        if not self._unseen:
            return {"source": self._source.get_state()}
        first = self._trail.read_so_far - len(self._unseen)
        return {"trail": self._trail.before(first)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the position in the source."""
        self._unseen = ()
        self._trail.return_to(state.get("trail") or at(state["source"]))

    def close(self) -> None:
        """Close the source."""
        self._source.close()
