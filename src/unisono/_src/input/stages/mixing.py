"""Several datasets made into one: zip, concatenate, interleave, choose."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import nest
from unisono._src.input.plan import cursors, elements, nodes, seeds
from unisono._src.input.stages import mapping


class Parallel(cursors.Cursor, abc.ABC):
    """Several streams side by side; abstract."""

    def __init__(self, sources: Sequence[cursors.Cursor]) -> None:
        self._sources = list(sources)

    def _positions(self) -> dict[str, Any]:
        return {"sources": [s.get_state() for s in self._sources]}

    def _return_to(self, state: dict[str, Any]) -> None:
        for source, inner in zip(self._sources, state["sources"], strict=True):
            source.set_state(inner)

    def close(self) -> None:
        """Close each."""
        for source in self._sources:
            source.close()


@final
class _Zipped(Parallel):
    def __init__(self, sources: Sequence[cursors.Cursor], structure: Any) -> None:
        super().__init__(sources)
        self._structure = structure

    def read(self, count: int) -> list[Any]:
        columns = [source.read(count) for source in self._sources]
        return [_fill_structure(self._structure, parts) for parts in zip(*columns)]  # noqa: B905

    def get_state(self) -> dict[str, Any]:
        return self._positions()

    def set_state(self, state: dict[str, Any]) -> None:
        self._return_to(state)


def _fill_structure(structure: Any, parts: Sequence[Any]) -> Any:
    """The structure with its numbers replaced by the parts of that number."""
    if type(structure) is tuple and all(type(s) is int for s in structure):
        return tuple(parts)
    return elements.map_leaves(lambda i: parts[i], structure)


@final
class _ZippedRows:
    """Rows of several sources side by side."""

    def __init__(self, parts: Sequence[Any], structure: Any) -> None:
        self._parts, self._structure = parts, structure

    def at(self, index: int) -> Any:
        return _fill_structure(self._structure, [p.at(index) for p in self._parts])

    def take(self, indices: np.ndarray, blank: nodes.Blank) -> Any:
        taken = [p.take(indices, blank) for p in self._parts]
        return _fill_structure(self._structure, taken)

    def slice(self, start: int, stop: int) -> Any:
        return _fill_structure(
            self._structure, [p.slice(start, stop) for p in self._parts]
        )


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Zip(nodes.Indexed):
    """One element of each dataset at a time.

    Attributes:
        inputs: the datasets.
        structure: numbers of the inputs, nested as an element shall be.
    """

    inputs: tuple[nodes.Node, ...]
    structure: Any

    def cursor(self) -> cursors.Cursor:
        """Ends with the shortest."""
        rows = self.rows()
        if rows is not None:
            return nodes.Lookup(rows, self.indices())
        return _Zipped([n.cursor() for n in self.inputs], self.structure)

    def rows(self) -> Any:
        """If every input is all rows of a table."""
        inputs = [n for n in self.inputs if isinstance(n, nodes.Indexed)]
        parts = [n.rows() for n in inputs]
        if len(parts) < len(self.inputs) or any(p is None for p in parts):
            return None
        if not all(isinstance(n.indices(), cursors.Count) for n in inputs):
            return None
        return _ZippedRows(parts, self.structure)

    def indices(self) -> cursors.Cursor:
        """As many as the shortest has."""
        return cursors.Count(self.cardinality)

    @property
    def cardinality(self) -> int:
        """That of the shortest."""
        return nodes.minimum([n.cardinality for n in self.inputs])

    def _spec(self) -> Any:
        return _fill_structure(self.structure, [n.spec for n in self.inputs])


@final
class _Chained(cursors.Cursor):
    def __init__(self, inputs: Sequence[nodes.Node]) -> None:
        self._inputs = inputs
        self._turn = 0
        self._source = inputs[0].cursor()
        self._orders = seeds.Orders(inputs)

    def read(self, count: int) -> list[Any]:
        found = list(self._source.read(count))
        while len(found) < count and self._turn + 1 < len(self._inputs):
            self._open(self._turn + 1)
            found.extend(self._source.read(count - len(found)))
        return found

    def skip(self, count: int) -> int:
        passed = self._source.skip(count)
        while passed < count and self._turn + 1 < len(self._inputs):
            self._open(self._turn + 1)
            passed += self._source.skip(count - passed)
        return passed

    def _open(self, turn: int) -> None:
        self._source.close()
        self._turn, self._source = turn, self._inputs[turn].cursor()

    def get_state(self) -> dict[str, Any]:
        source = self._source.get_state()
        orders = self._orders.get_state()
        return {"turn": self._turn, "source": source, "orders": orders}

    def set_state(self, state: dict[str, Any]) -> None:
        self._orders.set_state(state["orders"])
        if state["turn"] != self._turn:
            self._open(state["turn"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        self._source.close()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Concatenate(nodes.Node):
    """One dataset after the other."""

    inputs: tuple[nodes.Node, ...]
    makes_new = None

    def cursor(self) -> cursors.Cursor:
        """Each to its end."""
        return _Chained(self.inputs)

    @property
    def cardinality(self) -> int:
        """The sum."""
        found = [n.cardinality for n in self.inputs]
        if nodes.INFINITE in found:
            return nodes.INFINITE
        return nodes.UNKNOWN if nodes.UNKNOWN in found else sum(found)

    def _spec(self) -> Any:
        found = self.inputs[0].spec
        for other in self.inputs[1:]:
            found = joined_spec(found, other.spec)
        return found


def joined_spec(a: Any, b: Any) -> Any:
    """The spec that elements of either kind fit.

    Raises:
        TypeError: the structures or the element types differ.
    """
    first, second = list(elements.paths(a)), list(elements.paths(b))
    same = [p for p, _ in first] == [p for p, _ in second]
    if not same or any(
        type(x) is not type(y) or getattr(x, "dtype", x) != getattr(y, "dtype", y)
        for (_, x), (_, y) in zip(first, second, strict=True)
    ):
        raise TypeError(
            "Incompatible dataset elements: datasets that are joined must have the "
            f"same structure and element types, received {a} and {b}."
        )
    others = iter(elements.leaves(b))
    return elements.map_leaves(lambda s: mapping.merge_specs(s, next(others)), a)


@final
class _OpenDataset:
    """A dataset that an interleave has open."""

    def __init__(self, before: Any, place: int, source: cursors.Cursor) -> None:
        self.before, self.place, self.source = before, place, source


@final
class _Interleaved(cursors.Cursor):
    def __init__(self, node: Interleave) -> None:
        self._node = node
        self._source = node.parent.cursor()
        self._slots: list[_OpenDataset | None] = [None] * node.cycle
        self._turn = self._given = self._opened = 0
        self._over = False
        self._seed, self._number = 0, -1

    def _begin(self) -> None:
        if self._number < 0:
            order = self._node.order
            self._seed, self._number = order.seed, order.begin()

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not (self._over and not any(self._slots)):
            slot = self._slots[self._turn]
            if slot is not None:
                self._read_from(slot, found, count)
            elif self._over:
                self._advance()
            else:
                self._slots[self._turn] = self._open(self._opened)
                self._opened += 1
        return found

    def _read_from(self, slot: _OpenDataset, found: list[Any], count: int) -> None:
        wanted = count - len(found)
        if self._node.block:
            wanted = min(wanted, self._node.block - self._given)
        more = slot.source.read(wanted)
        found.extend(more)
        self._given += len(more)
        if len(more) < wanted:
            slot.source.close()
            self._slots[self._turn] = None
            self._advance()
        elif self._given == self._node.block:
            self._advance()

    def _advance(self) -> None:
        self._turn = (self._turn + 1) % len(self._slots)
        self._given = 0

    def _open(self, place: int) -> _OpenDataset | None:
        self._begin()
        before = self._source.get_state()
        block = self._source.read(1)
        if not len(block):
            self._over = True
            return None
        plan = plan_from(self._node.fn, block[0])
        plan = seeds.reseeded(plan, self._seed, self._number, place)
        return _OpenDataset(before, place, plan.cursor())

    def get_state(self) -> dict[str, Any]:
        self._begin()
        return {
            "source": self._source.get_state(),
            "turn": self._turn,
            "given": self._given,
            "over": self._over,
            "slots": [
                None
                if slot is None
                else {
                    "before": slot.before,
                    "place": slot.place,
                    "source": slot.source.get_state(),
                }
                for slot in self._slots
            ],
            "opened": self._opened,
            "seed": self._seed,
            "pass": self._number,
            "passes": self._node.order.passes,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._seed, self._number = state["seed"], state["pass"]
        self._node.order.resume(self._seed, state["passes"])
        self._opened = state["opened"]
        if len(state["slots"]) != len(self._slots):
            # The default follows the machine's cores, and this may be another machine.
            self._slots = [None] * len(state["slots"])
        for index, saved in enumerate(state["slots"]):
            if saved is None:
                self._slots[index] = None
                continue
            self._source.set_state(saved["before"])
            slot = self._open(saved["place"])
            if slot is None:
                raise ValueError(
                    "The position was saved from a dataset with more elements than "
                    "this one has."
                )
            slot.source.set_state(saved["source"])
            self._slots[index] = slot
        self._source.set_state(state["source"])
        self._turn, self._given = state["turn"], state["given"]
        self._over = state["over"]

    def close(self) -> None:
        for slot in self._slots:
            if slot is not None:
                slot.source.close()
        self._source.close()


def plan_from(fn: Callable[..., Any], element: Any) -> nodes.Node:
    """The plan of the dataset that a user's function returned.

    Raises:
        TypeError: it returned something else.
    """
    return plan_of(mapping.call(fn, element), "map_func")


def plan_of(made: Any, what: str) -> nodes.Node:
    """The plan of a dataset that the function `what` returned.

    Raises:
        TypeError: it returned something else.
    """
    node = getattr(made, "_node", None)
    if not isinstance(node, nodes.Node):
        raise TypeError(
            f"The `{what}` argument must return a `Dataset` object, received "
            f"{type(made).__name__}."
        )
    return node


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Interleave(nodes.Unary, nodes.Disturbed):
    """The elements of many datasets, a few from each in turn.

    Attributes:
        fn: makes a dataset of an element.
        cycle: how many are open at a time.
        block: how many elements are taken from one in turn; 0 takes all.
    """

    fn: Callable[..., Any]
    cycle: int
    block: int
    order: seeds.Order = dataclasses.field(default_factory=seeds.drawn)
    samples_spec = True
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Take turns."""
        return _Interleaved(self)

    def sampled(self) -> nodes.Node:
        """Not counted as a pass."""
        return dataclasses.replace(self, order=self.order.apart())

    def sample(self) -> nodes.Node:
        """The plan that the function makes of some element."""
        element = nodes.first(self.parent)
        if element is None:
            element = self.parent.example()
        return plan_from(self.fn, element)

    def _spec(self) -> Any:
        return mapping.mapped_spec(lambda e: plan_from(self.fn, e).spec, self.parent)

    def __str__(self) -> str:
        return "FlatMap" if not self.block else f"Interleave({self.cycle})"


def default_cycle() -> int:
    """How many datasets `interleave` opens if not told: one per core."""
    return os.cpu_count() or 1


def structure_of(datasets: Any) -> tuple[tuple[nodes.Node, ...], Any]:
    """The nodes in nested datasets, and the nest with their numbers in it.

    Raises:
        TypeError: something in it is not a dataset; a list is an array elsewhere, and
            not allowed here.
    """
    found: list[nodes.Node] = []

    def add(x: Any) -> int:
        node = getattr(x, "_node", None)
        if not isinstance(node, nodes.Node):
            advice = " Use a tuple instead." if isinstance(x, list) else ""
            raise TypeError(
                "The argument to `Dataset.zip()` must be a (potentially nested) "
                "structure of `Dataset` objects in tuples and dicts, received "
                f"{'None' if x is None else type(x).__name__}.{advice}"
            )
        found.append(node)
        return len(found) - 1

    def number_datasets(x: Any) -> Any:
        if elements.is_structure(x):
            return nest.rebuild(x, [number_datasets(c) for c in nest.children(x)])
        return add(x)

    structure = number_datasets(datasets)
    return tuple(found), structure


def check_alike(inputs: Sequence[nodes.Node], what: str) -> None:
    """Raise `TypeError` unless elements of one kind come from all inputs."""
    try:
        found = [n.spec for n in inputs]
    except Exception:
        # A function that fails for the first element; iterating tells that better,
        # and some datasets ignore it.
        return
    for number, spec in enumerate(found):
        try:
            joined_spec(found[0], spec)
        except TypeError:
            raise TypeError(
                f"`{what}` must have elements of the same structure and types: those "
                f"of dataset 0 are {found[0]}, those of dataset {number} are {spec}."
            ) from None
