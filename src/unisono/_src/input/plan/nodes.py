"""The plan of a dataset: what it reads and what is done to it, before anything runs.

A dataset is a tree of nodes. Because the plan is known before it runs, a batch of rows
of an array is taken with one indexing operation, and sharding can see the files, the
batches and what stands between them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, final

import numpy as np

from unisono._src.input.plan import cursors, elements

# Makes an array of a shape and type, to be filled.
Blank = Callable[[Sequence[int], Any], np.ndarray]
INFINITE = -1
UNKNOWN = -2


class Rows(Protocol):
    """Elements that can be had in any order, many at a time."""

    @abc.abstractmethod
    def at(self, index: int) -> Any:
        """One element."""

    @abc.abstractmethod
    def take(self, indices: np.ndarray, blank: Blank) -> Any:
        """A batch of the elements at `indices`, in new memory or that of `blank`."""

    @abc.abstractmethod
    def slice(self, start: int, stop: int) -> Any:
        """A batch of neighbours; may share memory with the source."""


@dataclasses.dataclass(frozen=True, eq=False)
class Node(abc.ABC):
    """A step of a plan; abstract.

    Attributes:
        keeps_spec: whether an element of the parent is like one of this node, so that
            one may be taken from there.
        samples_spec: whether the spec is found by looking at one element, which costs
            a call or a read, and says nothing about the sizes of the others.
        makes_new: whether the arrays of an element are new and belong to no one else;
            None if they are as new as those of the parents.
    """

    keeps_spec: ClassVar[bool] = False
    samples_spec: ClassVar[bool] = False
    makes_new: ClassVar[bool | None] = False

    @functools.cached_property
    def parents(self) -> tuple[Node, ...]:
        """The nodes that this one reads, in the order of its fields."""
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
        """The elements, from the first on."""

    @property
    @abc.abstractmethod
    def cardinality(self) -> int:
        """How many elements there are, `INFINITE` or `UNKNOWN`."""

    @functools.cached_property
    def spec(self) -> Any:
        """Shape and type of an element; None for a size that is not fixed."""
        return self._spec()

    @abc.abstractmethod
    def _spec(self) -> Any:
        """What `spec` keeps."""

    def example(self) -> Any:
        """What an element could be, for a dataset that has none."""
        return zeros(self.spec)

    @property
    def is_fresh(self) -> bool:
        """Whether the arrays of an element are new and belong to no one else."""
        if self.makes_new is None:
            return all(parent.is_fresh for parent in self.parents)
        return self.makes_new

    def __str__(self) -> str:
        return type(self).__name__


class Disturbed(abc.ABC):
    """A node that is changed by taking an element: a pass counts, a process starts."""

    @abc.abstractmethod
    def sampled(self) -> Node:
        """A node with the same first element, of which taking it disturbs nothing."""


@dataclasses.dataclass(frozen=True, eq=False)
class Indexed(Node, abc.ABC):
    """A node whose elements may be a choice of rows, by number; abstract."""

    @abc.abstractmethod
    def rows(self) -> Rows | None:
        """Rows of which the elements are a choice, where the plan allows that."""

    @abc.abstractmethod
    def indices(self) -> cursors.Cursor:
        """Which rows are the elements; only where there are `rows`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Unary(Node, abc.ABC):
    """A node with one parent; abstract."""

    parent: Node


@dataclasses.dataclass(frozen=True, eq=False)
class Passing(Unary, abc.ABC):
    """Gives elements of its parent as they are, perhaps not all of them; abstract."""

    def _spec(self) -> Any:
        return self.parent.spec


@dataclasses.dataclass(frozen=True, eq=False)
class Selecting(Passing, Indexed, abc.ABC):
    """Chooses and orders elements without looking at them; abstract.

    It works on elements and on indices alike, so that rows of arrays are touched only
    when they are needed.
    """

    makes_new: ClassVar[bool | None] = None

    @abc.abstractmethod
    def selecting(self, make: Callable[[], cursors.Cursor]) -> cursors.Cursor:
        """The chosen among what `make` gives, which can be asked again."""

    def cursor(self) -> cursors.Cursor:
        """The chosen elements."""
        rows = self.rows()
        if rows is not None:
            return Lookup(rows, self.indices())
        return self.selecting(self.parent.cursor)

    def example(self) -> Any:
        """One of the parent."""
        return self.parent.example()

    def rows(self) -> Rows | None:
        """Those of the parent."""
        return self.parent.rows() if isinstance(self.parent, Indexed) else None

    def indices(self) -> cursors.Cursor:
        """The chosen indices."""
        assert isinstance(self.parent, Indexed)
        return self.selecting(self.parent.indices)


@dataclasses.dataclass(frozen=True, eq=False)
class Keeping(Selecting, abc.ABC):
    """Gives all elements of its parent, in whatever order; abstract."""

    keeps_spec = True

    @property
    def cardinality(self) -> int:
        """That of the parent."""
        return self.parent.cardinality


@final
class Lookup(cursors.Derived):
    """The elements at a stream of indices."""

    def __init__(self, rows: Rows, indices: cursors.Cursor) -> None:
        super().__init__(indices)
        self._at = rows.at

    def read(self, count: int) -> list[Any]:
        """Look up one by one."""
        return [self._at(i) for i in self._source.read(count)]

    def skip(self, count: int) -> int:
        """Costs no look-up."""
        return self._source.skip(count)


def walk(node: Node) -> Iterator[Node]:
    """A node and everything that it reads, from the end to the sources."""
    yield node
    for parent in node.parents:
        yield from walk(parent)


def rewrite(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """A plan in which each node may be replaced; sources are visited first.

    Args:
        node: the end of the plan.
        change: gives the replacement of a node, or None to keep it.
    """
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            fields[field.name] = rewrite(value, change)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            fields[field.name] = tuple(rewrite(v, change) for v in value)
    if any(getattr(node, k) is not v for k, v in fields.items()):
        changed = any(
            a is not b
            for k, v in fields.items()
            for a, b in _pairs(getattr(node, k), v)
        )
        node = dataclasses.replace(node, **fields) if changed else node
    replacement = change(node)
    return node if replacement is None else replacement


def _pairs(old: Any, new: Any) -> Any:
    return zip(old, new, strict=True) if isinstance(old, tuple) else [(old, new)]


def minimum(cardinalities: list[int]) -> int:
    """The cardinality of what ends with its shortest part.

    >>> minimum([3, INFINITE]), minimum([3, UNKNOWN]), minimum([INFINITE])
    (3, -2, -1)
    """
    if UNKNOWN in cardinalities:
        return UNKNOWN
    finite = [c for c in cardinalities if c != INFINITE]
    return min(finite) if finite else INFINITE


def known_length(count: int) -> int:
    """A cardinality, if it is a number.

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


def first(node: Node) -> Any:
    """Some element, or None if there is none.

    It disturbs nothing: no pass over a shuffled dataset is counted, no thread starts.
    """
    plain = rewrite(node, _undisturbed)
    cursor = plain.cursor()
    try:
        found = cursor.read(1)
        return found[0] if found else None
    finally:
        cursor.close()


def _undisturbed(node: Node) -> Node | None:
    if isinstance(node, Disturbed):
        return node.sampled()
    return node.parents[0] if node.keeps_spec else None


def zeros(spec: Any) -> Any:
    """An element that fits a spec; unknown sizes are 1."""

    def one(s: Any) -> np.ndarray:
        shape = [1 if size is None else size for size in s.shape or ()]
        if s.dtype.kind == "O":
            return np.full(shape, b"", object)
        return np.zeros(shape, s.dtype)

    return elements.map_leaves(one, spec)
