"""The plan of a dataset: what it reads, and what it does to the elements.

A plan is a tree of nodes. Because it is known before it runs, a batch of rows of an
array is taken with one indexing operation, and sharding can see the files, the batches
and what stands between them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, dataclass_transform, final

import numpy as np

from unisono._src.input.plan import cursors, elements, first_elements

# A function that makes an array of a shape and type, to be filled.
Allocate = Callable[[Sequence[int], Any], np.ndarray]
# TensorFlow's values, which a user sees as `dataset.cardinality()`.
INFINITE = -1
UNKNOWN = -2


class Rows(Protocol):
    """Elements that can be read in any order, many at a time."""

    @abc.abstractmethod
    def element_at(self, index: int) -> object:
        """Returns the element at `index`."""

    @abc.abstractmethod
    def take(self, indices: np.ndarray, allocate: Allocate) -> object:
        """Returns the elements at `indices` as a batch.

        The memory is new, or comes from `allocate`.
        """

    @abc.abstractmethod
    def slice(self, start: int, stop: int) -> object:
        """Returns consecutive elements as a batch; may share memory with the source."""


# Without `eq`, nodes are equal only if they are the same, and can be dict keys although
# their fields, such as arrays, cannot.
@dataclass_transform(eq_default=False, frozen_default=True)
@dataclasses.dataclass(frozen=True, eq=False)
class Node(abc.ABC):
    """A step of a plan; abstract. Every subclass is a frozen dataclass.

    Attributes:
        keeps_spec: whether the elements of the parent look like those of this node, so
            that a sample may be taken from the parent.
        samples_spec: whether the spec is found by looking at one element, which costs
            a call or a read, and says nothing about the sizes of the others.
        makes_new: whether the arrays of an element are new and belong to no one else;
            None if they are as new as those of the parents.
    """

    keeps_spec: ClassVar[bool] = False
    samples_spec: ClassVar[bool] = False
    makes_new: ClassVar[bool | None] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, eq=False)(cls)

    # It writes into `__dict__`, past `__setattr__`: a frozen dataclass can have it.
    @functools.cached_property
    def parents(self) -> tuple[Node, ...]:
        """Returns the nodes that this one reads, in the order of its fields."""
        found: list[Node] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # A tuple may also hold many elements; the first tells what it holds.
            if isinstance(value, tuple) and value and isinstance(value[0], Node):
                found.extend(value)
            elif isinstance(value, Node):
                found.append(value)
        return tuple(found)

    @abc.abstractmethod
    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over the elements, at the first one."""

    @property
    @abc.abstractmethod
    def cardinality(self) -> int:
        """Returns the number of elements, `INFINITE` or `UNKNOWN`."""

    @functools.cached_property
    def spec(self) -> elements.Spec:
        """Returns the shape and type of an element; a size that varies is None."""
        return self._spec()

    @abc.abstractmethod
    def _spec(self) -> elements.Spec:
        """Computes `spec`, which keeps the result."""

    def example(self) -> object:
        """Returns a made-up element that fits the spec, for a dataset without any."""
        return zeros(self.spec)

    @property
    def is_fresh(self) -> bool:
        """Whether the arrays of an element are new and belong to no one else."""
        if self.makes_new is None:
            return all(parent.is_fresh for parent in self.parents)
        return self.makes_new

    def __str__(self) -> str:
        return type(self).__name__


class ChangedByReading(abc.ABC):
    """A node that changes when even one element of it is read; abstract.

    Reading one may count as a pass, or start a process.
    """

    @abc.abstractmethod
    def make_sample(self) -> Node:
        """Returns a node with the same first element, which may be read freely."""


class Indexed(Node, abc.ABC):
    """A node whose elements may be a selection of numbered rows; abstract."""

    @abc.abstractmethod
    def rows(self) -> Rows | None:
        """Returns the rows to select the elements from; None if there are none."""

    @abc.abstractmethod
    def indices(self) -> cursors.Cursor:
        """Returns a cursor over the numbers of the selected rows; needs `rows`."""


class RowSource(Indexed, abc.ABC):
    """A source that has rows, all of which are its elements, in order; abstract."""

    @abc.abstractmethod
    def rows(self) -> Rows:
        """Returns the rows."""

    def indices(self) -> cursors.Cursor:
        """Returns a cursor over the numbers of all rows."""
        return cursors.Count(self.cardinality)

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over the rows, in order."""
        return RowLookup(self.rows(), self.indices())


class Unary(Node, abc.ABC):
    """A node with one parent; abstract."""

    parent: Node


class SameCount(Unary, abc.ABC):
    """A node with as many elements as its parent; abstract."""

    @property
    def cardinality(self) -> int:
        """Returns the cardinality of the parent."""
        return self.parent.cardinality


class UnchangedElements(Unary, abc.ABC):
    """A node that returns elements of its parent unchanged, maybe not all; abstract."""

    def _spec(self) -> elements.Spec:
        return self.parent.spec


class Selecting(UnchangedElements, Indexed, abc.ABC):
    """A node that selects and orders elements without looking at them; abstract.

    It works on elements and on row numbers alike, so that rows of arrays are read only
    when they are needed.
    """

    makes_new: ClassVar[bool | None] = None

    @abc.abstractmethod
    def select_cursor(self, make: Callable[[], cursors.Cursor]) -> cursors.Cursor:
        """Returns a cursor over the selected elements.

        Args:
            make: returns a cursor to select from; may be called several times.
        """

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over the selected elements."""
        # With rows, the selection runs over cheap numbers, and only the selected rows
        # are read.
        rows = self.rows()
        if rows is not None:
            return RowLookup(rows, self.indices())
        return self.select_cursor(self.parent.cursor)

    def example(self) -> object:
        """Returns an example of the parent."""
        return self.parent.example()

    def rows(self) -> Rows | None:
        """Returns the rows of the parent."""
        return self.parent.rows() if isinstance(self.parent, Indexed) else None

    def indices(self) -> cursors.Cursor:
        """Returns a cursor over the selected row numbers."""
        assert isinstance(self.parent, Indexed)
        return self.select_cursor(self.parent.indices)


class AllElements(SameCount, Selecting, abc.ABC):
    """A node that returns all elements of its parent, in any order; abstract."""

    keeps_spec = True


@final
class RowLookup(cursors.UnaryCursor):
    """The rows at a stream of row numbers."""

    def __init__(self, rows: Rows, indices: cursors.Cursor) -> None:
        super().__init__(indices)
        # Looked up once: `read` calls it for every element.
        self._element_at = rows.element_at
        # The numbers behind a row that could not be read.
        self._left: list[int] = []

    def read(self, count: int) -> list[Any]:
        """Reads the rows one by one."""
        numbers = self._source.read(count) if not self._left else self._next(count)
        block = iter(numbers)
        try:
            return [self._element_at(i) for i in block]
        except BaseException:
            # Only the row that raised is lost.
            self._left = [*map(int, block), *self._left]
            raise

    def _next(self, count: int) -> list[int]:
        """Returns the next row numbers, first those that are left."""
        found, self._left = self._left[:count], self._left[count:]
        return [*found, *self._source.read(count - len(found))]

    def skip(self, count: int) -> int:
        """Skips row numbers; no row is read."""
        if self._left:
            return len(self._next(count))
        return self._source.skip(count)

    def get_state(self) -> dict[str, Any]:
        """Returns the position, and the row numbers that are left to read."""
        state = {"source": self._source.get_state()}
        return {**state, "left": list(self._left)} if self._left else state

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a position that `get_state` returned."""
        self._source.set_state(state["source"])
        self._left = list(state.get("left", ()))


def walk(node: Node) -> Iterator[Node]:
    """Yields a node and all nodes that it reads, from the end to the sources."""
    yield node
    for parent in node.parents:
        yield from walk(parent)


def rewrite(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Returns a plan in which `change` has replaced some nodes, sources first.

    Args:
        node: the end of the plan.
        change: returns the replacement of a node, or None to keep it.
    """
    node = change_parents(node, lambda parent: rewrite(parent, change))
    replacement = change(node)
    return node if replacement is None else replacement


def change_parents(node: Node, change: Callable[[Node], Node]) -> Node:
    """Returns a node whose parents `change` has replaced.

    A node whose parents stay is returned itself, with the spec that it has found.
    """
    made = {id(parent): change(parent) for parent in node.parents}
    if all(made[id(parent)] is parent for parent in node.parents):
        return node
    fields: dict[str, Node | tuple[Node, ...]] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            fields[field.name] = made[id(value)]
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            fields[field.name] = tuple(made[id(parent)] for parent in value)
    return dataclasses.replace(node, **fields)


def shortest_cardinality(cardinalities: list[int]) -> int:
    """Returns the cardinality of a dataset that ends with its shortest part.

    >>> parts = [3, INFINITE], [3, UNKNOWN], [INFINITE]
    >>> [shortest_cardinality(each) for each in parts]
    [3, -2, -1]
    """
    if UNKNOWN in cardinalities:
        return UNKNOWN
    finite = [c for c in cardinalities if c != INFINITE]
    return min(finite) if finite else INFINITE


def known_length(count: int) -> int:
    """Returns a cardinality that is a number.

    Raises:
        TypeError: it is infinite or unknown.
    """
    if count == INFINITE:
        raise TypeError("The dataset is infinite.")
    if count == UNKNOWN:
        raise TypeError("The dataset length is unknown.")
    return count


def tells_spec(node: Node) -> bool:
    """Whether the plan itself tells the spec, without a look at an element."""
    return not any(n.samples_spec for n in walk(node))


# How many elements are tried when the first ones cannot be read.
_SAMPLES = 16


def first_element(node: Node) -> object:
    """Returns one element, or None if there is none.

    Nothing changes by it: no pass over a shuffled dataset is counted, no thread starts.
    """
    return first_result(node, lambda element: element)


def first_spec(node: Node, empty: str) -> elements.Spec:
    """Returns the spec of the first element.

    Args:
        node: the plan, which is read for it.
        empty: the end of the error for a plan without elements: what it is, and what
            to do.

    Raises:
        ValueError: there is no element.
    """
    element = first_element(node)
    if element is None:
        raise ValueError(f"Cannot tell the element_spec of {empty}")
    return elements.spec_of(element)


def first_result(node: Node, use: Callable[[Any], Any]) -> Any:
    """Returns what a function makes of the first element, or None if there is none.

    If an element cannot be read, or the function raises for it, the next one is tried:
    `ignore_errors` may leave out what raises.
    """
    plain = rewrite(node, _skip_disturbance)
    failure: Exception | None = None
    with first_elements.paused():
        cursor = plain.cursor()
        try:
            for _ in range(_SAMPLES):
                try:
                    found = cursor.read(1)
                    if len(found):
                        return use(found[0])
                    break
                except Exception as e:
                    failure = failure or e
            if failure is not None:
                raise failure
            return None
        finally:
            cursor.close()
            # Its traceback holds this frame.
            del failure


def _skip_disturbance(node: Node) -> Node | None:
    """Returns what to read in place of a node when only a sample is wanted."""
    if isinstance(node, ChangedByReading):
        return node.make_sample()
    # An element of the parent looks alike, and needs no buffer and no thread.
    return node.parents[0] if node.keeps_spec else None


def zeros(spec: object, unknown: int = 1) -> object:
    """Returns an element of zeros that fits a spec.

    Args:
        spec: the spec.
        unknown: the size of an axis whose size the spec leaves open. Not 0 where a
            user's function is called with the element to find its result's spec:
            many, such as a maximum, do not work on nothing.
    """
    return elements.map_leaves(
        lambda s: elements.blank(
            [unknown if size is None else size for size in s.shape or ()], s.dtype
        ),
        spec,
    )
