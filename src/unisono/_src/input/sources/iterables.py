"""Sources that read from any Python iterable or iterator."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Iterator
from typing import Any, final

from unisono._src.execution import specs
from unisono._src.input.plan import (
    cursors,
    elements,
    first_elements,
    loader_structures,
    nodes,
)
from unisono._src.input.sources import arrays


@final
class Elements(Iterator[Any]):
    """The converted elements of an iterator.

    After an exception it continues, if the iterator can.

    Args:
        iterator: the iterator to read.
        convert: converts an element.
        total: the number of elements, if it is known.
        is_exact: whether ending before `total` can only be a mistake.
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
        # The exception of the last call, as text; None if it gave an element.
        self._failure: str | None = None

    def __next__(self) -> object:
        failure, self._failure = self._failure, None
        try:
            element = next(self._iterator)
        except StopIteration as e:
            # The data ends where it should, too early, or with an exception before.
            if self._taken == self._total:
                raise
            if self._is_exact:
                # Counted, so that the next call continues with the batch after it.
                self._taken += 1
                raise cursors.stop_iteration_error(
                    f"Making batch {self._taken - 1}"
                ) from e
            if failure is None:
                raise
            raise _ended_error(failure) from None
        except Exception as e:
            self._taken += 1
            self._failure = f"{type(e).__name__}: {e}"
            raise
        self._taken += 1
        return self._convert(element)


def _ended_error(failure: str) -> RuntimeError:
    """Returns the error for an iterator that ended because it had raised."""
    return RuntimeError(
        f"The iterable raised an exception before ({failure}) and ended with it, so "
        "the elements after it are missing: a generator cannot continue after an "
        "exception. Catch the exception inside of it, or give an iterator whose "
        "__next__ can be called again."
    )


@final
class CallableOnce:
    """A function that returns an iterator, and can be called a single time."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator: Iterator[Any] | None = iterator
        self._first: list[Any] = []

    def peek(self) -> list[Any]:
        """Returns a list with the first element, which will still be given, or []."""
        if self._iterator is not None and not self._first:
            self._first = list(itertools.islice(self._iterator, 1))
            self._iterator = itertools.chain(self._first, self._iterator)
        return self._first

    def __call__(self) -> Iterator[Any]:
        """Returns the iterator, the first time.

        Raises:
            RuntimeError: it was called before; the iterator would be empty.
        """
        iterator, self._iterator = self._iterator, None
        if iterator is None:
            raise RuntimeError(
                "The dataset was made from an iterator, which can be read only "
                "once. To iterate again, or to continue from a saved position, pass "
                "something that can be iterated again: a list, a loader, or "
                "Dataset.from_generator(function)."
            )
        return Elements(iterator, self._convert)

    def _convert(self, element: object) -> object:
        found = elements.copy(loader_structures.to_element(element))
        if not self._first:
            # Kept for the spec: once the iterator is in use, `peek` cannot read it. A
            # copy, because the caller may change the element.
            self._first = [elements.copy(found)]
        return found


@final
class OneShot(nodes.Node, nodes.ChangedByReading):
    """A source of the elements of an iterator, which can be read once."""

    make: CallableOnce
    samples_spec = True
    makes_new = True
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over the iterator."""
        return first_elements.watch(self, cursors.IteratorCursor(self.make))

    def make_sample(self) -> nodes.Node:
        """Returns a source of the first element, which stays in the iterator."""
        first = [loader_structures.to_element(e) for e in self.make.peek()]
        return arrays.Listed(tuple(first))

    def _spec(self) -> elements.Spec:
        return relax_batch_size(nodes.first_spec(self, arrays.NO_ELEMENTS))


@final
class IndexedIterable:
    """Makes an object iterable that has only `__getitem__`.

    The iteration ends at its length, or at the first IndexError if it has none.
    """

    def __init__(self, source: Any) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Any]:
        try:
            total = len(self._source)
        except (TypeError, NotImplementedError):
            # Python's own protocol: up to the first IndexError.
            return iter(self._source)
        return map(self._element_at, range(total))

    def _element_at(self, index: int) -> object:
        try:
            return self._source[index]
        except StopIteration as e:
            raise cursors.stop_iteration_error(
                f"{type(self._source).__name__}[{index}]"
            ) from e

    def __str__(self) -> str:
        return type(self._source).__name__


class Loader(nodes.Node, abc.ABC):
    """A source that reads another library's loader; abstract."""

    source: Any
    samples_spec = True
    # Elements are copied, because a loader may fill one array again and again.
    makes_new = True

    def _spec(self) -> elements.Spec:
        empty = (
            f"an empty loader: {self} has no elements. Give one that has at least one."
        )
        return relax_batch_size(nodes.first_spec(self, empty))

    def __str__(self) -> str:
        if isinstance(self.source, IndexedIterable):
            return str(self.source)
        return type(self.source).__name__


class Repeatable(Loader, abc.ABC):
    """A loader that Python can iterate over again and again; abstract."""

    def iterate(self) -> Iterator[Any]:
        """Returns a new iterator over the converted elements."""
        count = self.cardinality
        total = None if count == nodes.UNKNOWN else count
        exact = total is not None and self._is_exact()
        return Elements(iter(self.source), self._convert, total, exact)

    @abc.abstractmethod
    def _is_exact(self) -> bool:
        """Whether the loader always gives as many elements as its length says."""

    @abc.abstractmethod
    def _convert(self, element: object) -> object:
        """Returns an element as arrays that no one else will change."""

    @property
    def cardinality(self) -> int:
        """Returns the length of the loader, if it has one."""
        return length(self.source)


@final
class Plain(Repeatable):
    """An iterable that is not from a library known here."""

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that starts from the beginning."""
        return first_elements.watch(self, cursors.IteratorCursor(self.iterate))

    def _is_exact(self) -> bool:
        return False

    def _convert(self, element: object) -> object:
        return elements.copy(loader_structures.to_element(element))


def length(source: Any) -> int:
    """Returns the number of elements that an object claims, or `nodes.UNKNOWN`."""
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return nodes.UNKNOWN


def relax_batch_size(spec: object) -> elements.Spec:
    """Returns a spec in which the number of examples may vary.

    No loader promises that all its batches have the same size.
    """
    return elements.map_specs(
        lambda s: specs.TensorSpec(
            (None, *s.shape[1:]) if s.shape.rank else s.shape, s.dtype
        ),
        spec,
    )
