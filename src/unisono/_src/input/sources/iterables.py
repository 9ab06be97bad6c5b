"""Anything that can be iterated, as the source of a plan."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, final

from unisono._src.execution import specs
from unisono._src.input.plan import cursors, elements, loader_structures, nodes
from unisono._src.input.sources import arrays


@final
class Elements(Iterator[Any]):
    """The elements of an iterator, converted; goes on after an exception if that does.

    Args:
        iterator: what is gone through.
        convert: called with each element.
        total: how many there are, if that is known.
        is_exact: whether an earlier end can only be a mistake.
    """

    def __init__(
        self,
        iterator: Iterator[Any],
        convert: Callable[[Any], Any],
        total: int | None = None,
        is_exact: bool = False,
    ) -> None:
        self._iterator, self._convert = iterator, convert
        self._total, self._is_exact = total, is_exact
        self._taken = 0
        # What the iterator raised, if nothing came since.
        self._failure: str | None = None

    def __next__(self) -> Any:
        failure, self._failure = self._failure, None
        try:
            element = next(self._iterator)
        except StopIteration as e:
            if self._taken == self._total:
                raise
            if self._is_exact:
                self._taken += 1
                raise stopped(f"Making batch {self._taken - 1}") from e
            if failure is None:
                raise
            raise _ended(failure) from None
        except Exception as e:
            self._taken += 1
            self._failure = f"{type(e).__name__}: {e}"
            raise
        self._taken += 1
        return self._convert(element)


def _ended(failure: str) -> RuntimeError:
    return RuntimeError(
        f"The iterable raised an exception before ({failure}) and ended with it, so "
        "all that should have come behind is missing: a generator cannot go on after "
        "an exception. Catch the exception inside of it, or give an iterator whose "
        "__next__ can be called again."
    )


@final
class Once:
    """An iterator that can be used a single time."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator: Iterator[Any] | None = iterator
        self._first: list[Any] = []

    def peek(self) -> list[Any]:
        """The first element, which is not used up; nothing if there is none."""
        if self._iterator is not None and not self._first:
            self._first = list(itertools.islice(self._iterator, 1))
            self._iterator = itertools.chain(self._first, self._iterator)
        return self._first

    def __call__(self) -> Iterator[Any]:
        """The iterator, the first time.

        Raises:
            RuntimeError: the second time; it would be empty.
        """
        iterator, self._iterator = self._iterator, None
        if iterator is None:
            raise RuntimeError(
                "The dataset was made of an iterator, which can be gone through only "
                "once. To iterate again, or to continue from a saved position, pass "
                "something that can be iterated anew: a list, a loader, or "
                "Dataset.from_generator(function)."
            )
        return Elements(iterator, self._converted)

    def _converted(self, element: Any) -> Any:
        found = elements.convert(loader_structures.to_structure(element))
        found = elements.map_leaves(elements.owned, found)
        if not self._first:
            # Remembered, to tell later what the elements look like.
            self._first = [elements.map_leaves(elements.owned, found)]
        return found


@final
@dataclasses.dataclass(frozen=True, eq=False)
class OneShot(nodes.Node, nodes.Disturbed):
    """The elements of an iterator."""

    make: Once
    samples_spec = True
    makes_new = True
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """The iterator, once."""
        return cursors.Iterated(self.make)

    def sampled(self) -> nodes.Node:
        """The first element, without taking it away."""
        first = [
            elements.convert(loader_structures.to_structure(e))
            for e in self.make.peek()
        ]
        return arrays.Listed(tuple(first))

    def _spec(self) -> Any:
        return unfixed(arrays.first_spec(self))


@final
class Numbered:
    """What can only be had by number, to be iterated: to its length, if it has one."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Any]:
        try:
            total = len(self._source)
        except (TypeError, NotImplementedError):
            # As Python would: up to the first IndexError.
            return iter(self._source)
        return map(self._at, range(total))

    def _at(self, index: int) -> Any:
        try:
            return self._source[index]
        except StopIteration as e:
            raise stopped(f"{type(self._source).__name__}[{index}]") from e

    def __str__(self) -> str:
        return type(self._source).__name__


def stopped(what: str) -> RuntimeError:
    """A user's function raised what Python takes for the end of the data."""
    return RuntimeError(
        f"{what} raised StopIteration, which would end the data without a word. Does "
        "it call next() of an iterator that is over?"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Loader(nodes.Node, abc.ABC):
    """Something of another library that gives elements; abstract."""

    source: Any
    samples_spec = True
    # Copied: a loader may fill the same array again and again.
    makes_new = True

    def _spec(self) -> Any:
        element = nodes.first(self)
        if element is None:
            raise ValueError("Cannot tell the element_spec of an empty loader.")
        return unfixed(elements.spec_of(element))

    def __str__(self) -> str:
        if isinstance(self.source, Numbered):
            return str(self.source)
        return type(self.source).__name__


@dataclasses.dataclass(frozen=True, eq=False)
class Repeatable(Loader, abc.ABC):
    """What Python can iterate over again and again; abstract."""

    def _elements(self) -> Iterator[Any]:
        count = self.cardinality
        total = None if count == nodes.UNKNOWN else count
        exact = total is not None and self._is_exact()
        return Elements(iter(self.source), self._converted, total, exact)

    @abc.abstractmethod
    def _is_exact(self) -> bool:
        """Whether its length is a promise."""

    @abc.abstractmethod
    def _converted(self, element: Any) -> Any:
        """An element as arrays that no one else will change."""

    @property
    def cardinality(self) -> int:
        """Its length, if it has one."""
        return length(self.source)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Plain(Repeatable):
    """An object of no library that is known here."""

    def cursor(self) -> cursors.Cursor:
        """From the beginning."""
        return cursors.Iterated(self._elements)

    def _is_exact(self) -> bool:
        return False

    def _converted(self, element: Any) -> Any:
        found = elements.convert(loader_structures.to_structure(element))
        return elements.map_leaves(elements.owned, found)


def length(source: Any) -> int:
    """How many elements something says it has, or `nodes.UNKNOWN`."""
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return nodes.UNKNOWN


def unfixed(spec: Any) -> Any:
    """A spec in which the number of examples may vary: no loader promises it."""
    return elements.map_leaves(
        lambda s: specs.TensorSpec(
            (None, *s.shape[1:]) if s.shape else s.shape, s.dtype
        ),
        spec,
    )
