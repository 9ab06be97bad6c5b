"""Anything that can be iterated, as the source of a plan."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from unisono._src import specs
from unisono._src.input import cursors, elements, nodes, sources, structures


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
        return self._elements(iterator)

    def _elements(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for element in iterator:
            found = elements.convert(structures.structured(element))
            if not self._first:
                # Remembered, to tell later what the elements look like.
                self._first = [elements.map_leaves(elements.owned, found)]
            yield found


@dataclasses.dataclass(frozen=True, eq=False)
class OneShot(sources.Generated):
    """The elements of an iterator."""

    make: Once

    def sampled(self) -> nodes.Node:
        """The first element, without taking it away."""
        first = [elements.convert(structures.structured(e)) for e in self.make.peek()]
        return sources.Listed(tuple(first))

    def _spec(self) -> Any:
        return unfixed(super()._spec())


@dataclasses.dataclass(frozen=True, eq=False)
class Loader(nodes.Node):
    """Something that can be iterated again and again."""

    source: Any
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """From the beginning."""
        return cursors.Iterated(self._elements)

    def _elements(self) -> Iterator[Any]:
        for element in self.source:
            found = elements.convert(structures.structured(element))
            yield elements.map_leaves(elements.owned, found)

    @property
    def cardinality(self) -> int:
        """Its length, if it has one."""
        try:
            return len(self.source)
        except TypeError:
            return nodes.UNKNOWN

    @property
    def is_fresh(self) -> bool:
        """Copied: a loader may fill the same array again and again."""
        return True

    def _spec(self) -> Any:
        element = nodes.first(self)
        if element is None:
            raise ValueError("Cannot tell the element_spec of an empty loader.")
        return unfixed(elements.spec_of(element))

    def __str__(self) -> str:
        return type(self.source).__name__


def unfixed(spec: Any) -> Any:
    """A spec in which the number of examples may vary: no loader promises it."""
    return elements.map_leaves(
        lambda s: specs.TensorSpec(
            (None, *s.shape[1:]) if s.shape else s.shape, s.dtype
        ),
        spec,
    )
