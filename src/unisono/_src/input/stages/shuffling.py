"""Shuffles through a buffer, as tf.data does, with a position that can be saved."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.plan.seeds import Order, RandomPass
from unisono._src.input.stages.selecting import Make


def _generator(seed: int, number: int, *purpose: int) -> np.random.Generator:
    """Returns the random numbers of a pass; one stream for each `purpose`."""
    # A `SeedSequence` takes no negative numbers,
    # and TensorFlow's seeds may be negative.
    seeds = np.random.SeedSequence([abs(seed), number, *purpose])
    return np.random.Generator(np.random.PCG64(seeds))


def _permute(seed: int, number: int, length: int) -> np.ndarray:
    """Returns the order in which a buffer that holds everything is emptied."""
    # Another stream than that of the draws, so that a restored position need not know
    # how many random numbers a permutation takes: it only jumps over single draws.
    return _generator(seed, number, 1).permutation(length)


# A position gets the content of the buffer anew only after an eighth of the buffer has
# been drawn. Positions in between hold the last content and the number of draws since
# then; repeating these costs little beside filling the buffer.
_PART = 8


class _Shuffled(cursors.UnaryCursor, abc.ABC):
    """Draws from a buffer that is filled up before each draw; abstract.

    The buffer is mixed when it is full for the first time. If it holds the whole source
    then, it is emptied in that order; otherwise each draw is from anywhere in it.
    """

    _random: np.random.Generator

    def __init__(self, source: cursors.Cursor, size: int, order: Order) -> None:
        super().__init__(source)
        self._size, self._pass = size, RandomPass(order)
        self._drawn = 0
        self._over = False
        # Whether the buffer was mixed, and whether no entry has come since.
        self._is_mixed = self._is_ordered = False
        self._buffer: list[Any] = []
        # The content that was written out last, and how many draws there were since.
        self._written: dict[str, Any] | None = None
        self._since = 0
        self._has_failed = False

    @abc.abstractmethod
    def _pull(self, count: int) -> list[Any]:
        """Returns the next entries for the buffer; fewer only at the end."""

    @abc.abstractmethod
    def _whole_state(self) -> dict[str, Any]:
        """Returns the content of the buffer, and the position of the source."""

    @abc.abstractmethod
    def _return_to(self, state: dict[str, Any]) -> None:
        """Goes to a position that `_whole_state` returned."""

    def _pull_new(self, count: int) -> list[Any]:
        """Returns the next entries for the buffer, and notes whether pulling raised."""
        try:
            arrived = self._pull(count)
        except BaseException:
            # Some entries may have come into the buffer before the exception.
            self._has_failed = True
            raise
        if self._has_failed:
            # A position from before the exception, with draws counted on from there,
            # would meet the exception again.
            self._has_failed, self._written = False, None
        return arrived

    def _choose(self, count: int) -> list[Any]:
        """Returns the next entries, in shuffled order."""
        if not self._is_mixed:
            self._mix()
        buffer = self._buffer
        # The result is the same as that of `count` single draws, each of which fills
        # the buffer up first: all entries that these would pull are pulled at once.
        # How many draws the buffer allows before it needs a new entry.
        surplus = max(0, len(buffer) - self._size + 1)
        missing = 0 if self._over else max(0, count - surplus)
        arrived = self._pull_new(missing) if missing else []
        self._over = self._over or len(arrived) < missing
        chosen: list[Any] = []
        if self._is_ordered:
            # As long as no entry arrives, the mixed order is followed.
            calm = surplus if arrived or not self._over else len(buffer)
            chosen = [buffer.pop() for _ in range(min(count, calm))]
            self._is_ordered = not arrived
        chosen += self._draw(count - len(chosen), arrived)
        self._since += len(chosen)
        return chosen

    def _draw(self, count: int, arrived: list[Any]) -> list[Any]:
        """Draws from anywhere in the buffer, which gets one entry before each draw."""
        buffer = self._buffer
        total = min(count, len(buffer) + len(arrived))
        # Each number takes one step of PCG64, which
        # `set_state` counts on when it jumps.
        draws = self._random.random(total).tolist()
        self._drawn += total
        chosen = []
        append, pop = buffer.append, buffer.pop
        for draw, entry in zip(draws, arrived, strict=False):
            append(entry)
            # The last entry takes the place of the drawn one, so nothing is moved.
            place = int(draw * len(buffer))
            chosen.append(buffer[place])
            buffer[place] = buffer[-1]
            pop()
        for draw in draws[len(arrived) :]:
            place = int(draw * len(buffer))
            chosen.append(buffer[place])
            buffer[place] = buffer[-1]
            pop()
        return chosen

    def _mix(self) -> None:
        """Fills the buffer for the first time, and mixes it."""
        seed, number = self._pass.begin()
        self._random = _generator(seed, number)
        buffer = self._buffer
        while len(buffer) < self._size and not self._over:
            wanted = min(self._size - len(buffer), cursors.BLOCK)
            arrived = self._pull_new(wanted)
            self._over = len(arrived) < wanted
            buffer.extend(arrived)
        # Backwards, since a list is emptied from its end.
        places = _permute(seed, number, len(buffer))[::-1]
        self._buffer = [buffer[place] for place in places.tolist()]
        self._is_mixed = self._is_ordered = True

    def get_state(self) -> dict[str, Any]:
        # Not part of what is written: other iterators may begin passes after that.
        own = self._pass.get_state()
        is_near = self._since <= self._size // _PART
        if self._written is None or self._has_failed or not is_near:
            self._written, self._since = self._whole_state(), 0
            self._written |= {
                "drawn": self._drawn,
                "over": self._over,
                "mixed": self._is_mixed,
                "ordered": self._is_ordered,
            }
        return {**self._written, **own, "then": self._since}

    def set_state(self, state: dict[str, Any]) -> None:
        self._drawn, self._over = state["drawn"], state["over"]
        self._is_mixed, self._is_ordered = state["mixed"], state["ordered"]
        self._pass.set_state(state)
        self._random = _generator(*self._pass.begin())
        # PCG64 can jump over the draws that were made; NumPy's stubs know only the base
        # class of generators, which has no `advance`.
        self._random.bit_generator.advance(self._drawn)  # type: ignore[attr-defined]
        self._return_to(state)
        self._written, self._since = None, 0
        if state.get("then"):
            # Drawn again and thrown away: what was
            # returned after the content was written.
            self._choose(state["then"])


@final
class _ShuffledIndices(_Shuffled):
    """Shuffles numbers of rows; the state holds those in the buffer."""

    def read(self, count: int) -> list[int]:
        return self._choose(count)

    def _pull(self, count: int) -> list[int]:
        found: Any = self._source.read(count)
        # Plain numbers, since positions are plain data.
        return found.tolist() if isinstance(found, np.ndarray) else [*map(int, found)]

    def _whole_state(self) -> dict[str, Any]:
        return {"buffer": list(self._buffer), "source": self._source.get_state()}

    def _return_to(self, state: dict[str, Any]) -> None:
        self._buffer = list(state["buffer"])
        self._source.set_state(state["source"])


@final
class _ShuffledElements(_Shuffled):
    """Shuffles elements; the state holds their numbers, and they are read again.

    On average an element waits in the buffer for as many draws as the buffer is large,
    so little more than the buffer is read again.
    """

    def __init__(self, source: cursors.Cursor, size: int, order: Order) -> None:
        super().__init__(source, size, order)
        self._every = max(size, cursors.BLOCK)
        self._history = cursors.PositionHistory(source, self._every)
        self._swept = 0

    def read(self, count: int) -> list[Any]:
        return [element for _, element in self._choose(count)]

    def _pull(self, count: int) -> list[Any]:
        number = self._history.read_so_far
        arrived: list[Any] = []
        try:
            while len(arrived) < count:
                index = self._history.read_so_far
                one = self._history.read(1)
                if not len(one):
                    break
                arrived.append((index, one[0]))
        except BaseException:
            # A reader that continues after the exception must miss nothing else.
            self._buffer.extend(arrived)
            self._is_ordered = self._is_ordered and not arrived
            raise
        # Looking through the whole buffer costs much, so it is done seldom.
        if number - self._swept > self._every:
            self._swept = number
            kept = (index for index, _ in self._buffer)
            self._history.forget_before(min(kept, default=number))
        return arrived

    def _whole_state(self) -> dict[str, Any]:
        kept = [index for index, _ in self._buffer]
        end = self._history.read_so_far
        position = self._history.position_before(min(kept, default=end))
        behind = self._history.behind_failure()
        return {"kept": kept, "end": end, "trail": position, **behind}

    def _return_to(self, state: dict[str, Any]) -> None:
        self._history.return_to(state["trail"])
        places = {index: place for place, index in enumerate(state["kept"])}
        self._buffer = [None] * len(places)
        for index, element in self._history.read_again(state["end"], state):
            if index in places:
                self._buffer[places[index]] = (index, element)


@final
class _Permuted(cursors.Cursor):
    """Reads all rows of a table in random order, without a buffer.

    The order is that of a buffer that holds everything: two datasets that are shuffled
    with the same seed must have the same order, whatever stands before the shuffle.
    """

    def __init__(self, length: int, order: Order) -> None:
        self._length, self._pass = length, RandomPass(order)
        self._next = 0
        self._permutation: np.ndarray | None = None

    def _find_order(self) -> np.ndarray:
        """Returns the permutation, which is made when it is first needed."""
        if self._permutation is None:
            self._permutation = _permute(*self._pass.begin(), self._length)
        return self._permutation

    def read(self, count: int) -> Any:
        """Returns the next piece of the permutation."""
        found = self._find_order()[self._next : self._next + count]
        self._next += len(found)
        return found

    def skip(self, count: int) -> int:
        """Passes over `count` rows at no cost; returns how many there were."""
        return len(self.read(count))

    def get_state(self) -> dict[str, Any]:
        """Returns the seed of the permutation, and a place in it."""
        return {
            **self._pass.get_state(),
            "next": self._next,
            "of": self._length,
            "row": self._row(),
        }

    def _row(self) -> int | None:
        """Returns the next row, which reveals a wrong order; None at the ends."""
        order = self._permutation
        if order is None or self._next >= len(order):
            return None
        return int(order[self._next])

    def set_state(self, state: dict[str, Any]) -> None:
        """Makes the same permutation again, and continues in it.

        Raises:
            ValueError: the permutation is another one here.
        """
        if state["of"] != self._length:
            raise ValueError(
                f"The position was saved in a shuffle of {state['of']} elements, and "
                f"this one has {self._length}: their orders differ. Continue with the "
                "same data."
            )
        self._pass.set_state(state)
        self._next, self._permutation = state["next"], None
        if state["row"] is not None and state["row"] != self._find_order()[self._next]:
            raise ValueError(
                "The position was saved in another order of the same elements: this "
                "version of NumPy shuffles differently from the version that saved "
                "the position. Continue with that version."
            )

    def close(self) -> None:
        """Does nothing: it holds no source."""


@final
class Shuffle(nodes.AllElements):
    """The elements, each drawn at random from a buffer of `size`."""

    size: int
    order: Order

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that shuffles elements, or the numbers of rows."""
        source = make()
        if self.rows() is None:
            return _ShuffledElements(source, self.size, self.order)
        # A `Count` is all rows in order. A selection of them, such as a `take` before
        # the shuffle, goes through the buffer, which gives the same order.
        if isinstance(source, cursors.Count) and source.length <= self.size:
            return _Permuted(source.length, self.order)
        return _ShuffledIndices(source, self.size, self.order)

    def __str__(self) -> str:
        return f"Shuffle({self.size})"


# How many random numbers are drawn at once.
_DRAWN = 256


@final
class _RandomNumbersCursor(cursors.Cursor):
    """Reads random numbers; each block has its own seed, so skipping draws none."""

    def __init__(self, node: RandomNumbers) -> None:
        self._draw, self._pass = node.draw, RandomPass(node.order)
        self._next = 0
        self._block: tuple[int, Any] = (-1, None)

    def read(self, count: int) -> list[Any]:
        seed, pass_number = self._pass.begin()
        found: list[Any] = []
        while len(found) < count:
            number, place = divmod(self._next, _DRAWN)
            if self._block[0] != number:
                key = [abs(seed), pass_number, number]
                drawn = self._draw(np.random.default_rng(key), _DRAWN)
                self._block = (number, drawn)
            some = self._block[1][place : place + count - len(found)]
            found.extend(some)
            self._next += len(some)
        return found

    def skip(self, count: int) -> int:
        self._pass.begin()
        self._next += count
        return count

    def get_state(self) -> dict[str, Any]:
        return {**self._pass.get_state(), "next": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self._pass.set_state(state)
        self._next, self._block = state["next"], (-1, None)

    def close(self) -> None:
        """Does nothing: it holds no source."""


@final
class RandomNumbers(nodes.Node, nodes.ChangedByReading):
    """Random integers without end.

    Attributes:
        draw: returns a given number of int64 from a generator.
        order: numbers the passes, and gives their seeds.
    """

    draw: Callable[[np.random.Generator, int], np.ndarray]
    order: Order
    cardinality = nodes.INFINITE

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor for another pass."""
        return _RandomNumbersCursor(self)

    def make_sample(self) -> nodes.Node:
        """Returns a copy whose passes are not counted."""
        return dataclasses.replace(self, order=self.order.separate_copy())

    def _spec(self) -> elements.Spec:
        return specs.TensorSpec((), np.int64)
