"""Stages that choose and repeat elements without looking at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, nodes

# Makes a cursor over the elements of the parent, or over the numbers of its rows.
Make = Callable[[], cursors.Cursor]


@final
class _TakeCursor(cursors.Derived):
    """Reads the first `count` elements."""

    kept = ("left",)

    def __init__(self, source: cursors.Cursor, count: int) -> None:
        super().__init__(source)
        self._left = count

    def read(self, count: int) -> Sequence[Any]:
        found = self._source.read(min(count, self._left))
        self._left -= len(found)
        return found

    def skip(self, count: int) -> int:
        passed = self._source.skip(min(count, self._left))
        self._left -= passed
        return passed


@final
class Take(nodes.Selecting):
    """The first `count` elements."""

    count: int

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that stops after `count`; a negative count means all."""
        return make() if self.count < 0 else _TakeCursor(make(), self.count)

    @property
    def cardinality(self) -> int:
        """Returns how many elements there are, at most `count`."""
        inner = self.parent.cardinality
        if self.count < 0 or inner == nodes.UNKNOWN:
            return inner
        return self.count if inner == nodes.INFINITE else min(inner, self.count)

    def __str__(self) -> str:
        return f"Take({self.count})"


@final
class _SkipCursor(cursors.Derived):
    """Passes over the first `count` elements when it is first read."""

    kept = ("left",)

    def __init__(self, source: cursors.Cursor, count: int) -> None:
        super().__init__(source)
        self._left = count

    def read(self, count: int) -> Sequence[Any]:
        # Not in `__init__`: whoever makes a cursor only to ask for its position, or to
        # set one, must not wait for elements.
        if self._left:
            self._source.skip(self._left)
            self._left = 0
        return self._source.read(count)


@final
class EmptyCursor(cursors.Cursor):
    """A cursor without elements."""

    def read(self, count: int) -> list[Any]:
        """Returns no elements, as at the end of the data."""
        return []

    def get_state(self) -> dict[str, Any]:
        """Returns an empty state."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Does nothing: there is only one position."""

    def close(self) -> None:
        """Does nothing: it holds no source."""


@final
class Skip(nodes.Selecting):
    """All but the first `count` elements."""

    count: int

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that starts after `count`; a negative count skips all."""
        return EmptyCursor() if self.count < 0 else _SkipCursor(make(), self.count)

    @property
    def cardinality(self) -> int:
        """Returns how many elements are left."""
        inner = self.parent.cardinality
        if inner >= 0 and self.count < 0:
            return 0
        return inner if inner < 0 else max(0, inner - self.count)

    def __str__(self) -> str:
        return f"Skip({self.count})"


# `shard(SHARD_HINT, SHARD_HINT)` marks where AutoShardPolicy.HINT puts the shard.
SHARD_HINT = -1


@final
class ShardCursor(cursors.Derived):
    """Reads every `shards`-th element from `index` on."""

    kept = ("begun",)

    def __init__(self, source: cursors.Cursor, shards: int, index: int) -> None:
        super().__init__(source)
        self._shards, self._index, self._begun = shards, index, False

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            # The others are passed over before each element, not after it: a reader
            # must not wait for elements that it may never want.
            others = self._shards - 1 if self._begun else self._index
            if self._source.skip(others) < others:
                break
            self._begun = True
            one = self._source.read(1)
            if not len(one):
                break
            found.append(one[0])
        return found


@final
class Shard(nodes.Selecting):
    """Every `shards`-th element, beginning with number `index`."""

    shards: int
    index: int

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that reads the elements of one shard.

        Raises:
            FailedPreconditionError: the shard is a hint outside a distributed dataset.
        """
        if self.shards == SHARD_HINT:
            raise errors.FailedPreconditionError(
                "`shard(SHARD_HINT, SHARD_HINT)` can only be used with a distributed "
                "dataset whose auto_shard_policy is HINT."
            )
        return ShardCursor(make(), self.shards, self.index)

    @property
    def cardinality(self) -> int:
        """Returns how many elements this shard has."""
        inner = self.parent.cardinality
        if inner < 0:
            return inner
        return len(range(self.index, inner, self.shards))

    def __str__(self) -> str:
        return f"Shard({self.index} of {self.shards})"


@final
class _RepeatCursor(cursors.Derived):
    """Reads the source again and again, with a new cursor each time."""

    kept = ("epoch", "any", "over")

    def __init__(self, make: Make, count: int) -> None:
        super().__init__(make())
        self._make, self._count = make, count
        self._epoch = 0
        # Whether this epoch had an element.
        self._any = False
        self._over = count == 0

    def read(self, count: int) -> Sequence[Any]:
        if self._over:
            return []
        found = self._source.read(count)
        self._any = self._any or bool(len(found))
        if len(found) == count:
            return found
        joined = list(found)
        while len(joined) < count and self._begin_epoch():
            more = self._source.read(count - len(joined))
            self._any = self._any or bool(len(more))
            joined.extend(more)
        return joined

    def skip(self, count: int) -> int:
        passed = 0 if self._over else self._source.skip(count)
        self._any = self._any or bool(passed)
        while passed < count and self._begin_epoch():
            more = self._source.skip(count - passed)
            self._any = self._any or bool(more)
            passed += more
        return passed

    def _begin_epoch(self) -> bool:
        """Begins again; False after the last time or if there is nothing to repeat."""
        self._epoch += 1
        # As in TensorFlow, an empty epoch ends only what is repeated for ever.
        is_endless = self._count < 0 and not self._any
        self._over = self._over or self._epoch == self._count or is_endless
        if self._over:
            return False
        self._source.close()
        self._source = self._make()
        self._any = False
        return True


@final
class Repeat(nodes.Selecting):
    """All elements, `count` times in a row."""

    count: int
    keeps_spec = True

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns a cursor that reads `count` times; for ever if it is negative."""
        # A source that is known to be empty need not be asked `count` times.
        return _RepeatCursor(make, self.count if self.parent.cardinality else 0)

    @property
    def cardinality(self) -> int:
        """Returns the cardinality of the parent times `count`."""
        inner = self.parent.cardinality
        if self.count == 0 or inner == 0:
            return 0
        if self.count < 0 or inner == nodes.INFINITE:
            return nodes.INFINITE
        return inner if inner < 0 else inner * self.count

    def __str__(self) -> str:
        return "Repeat()" if self.count < 0 else f"Repeat({self.count})"


@final
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

    def read(self, count: int) -> Sequence[Any]:
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
