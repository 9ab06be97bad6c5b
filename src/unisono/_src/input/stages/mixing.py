"""Makes one dataset of several: zip, concatenate and interleave."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import nest
from unisono._src.input.plan import cursors, elements, nodes, seeds
from unisono._src.input.stages import mapping


class Parallel(cursors.Cursor, abc.ABC):
    """Reads several sources side by side; abstract."""

    def __init__(self, sources: Sequence[cursors.Cursor]) -> None:
        self._sources = list(sources)

    def _positions(self) -> dict[str, Any]:
        return {"sources": [s.get_state() for s in self._sources]}

    def _return_to(self, state: dict[str, Any]) -> None:
        for source, inner in zip(self._sources, state["sources"], strict=True):
            source.set_state(inner)

    def close(self) -> None:
        """Closes every source."""
        for source in self._sources:
            source.close()


@final
class _Zipped(Parallel):
    """Reads one element of each source, and nests them."""

    def __init__(self, sources: Sequence[cursors.Cursor], structure: object) -> None:
        super().__init__(sources)
        self._structure, self._over = structure, False

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        # One element at a time: a source that raises in the middle of a block does not
        # tell how many elements it has passed, and the others could not keep step.
        while len(found) < count and (parts := self._read_parts()) is not None:
            found.append(_fill_structure(self._structure, parts))
        return found

    def _read_parts(self) -> list[Any] | None:
        """Returns the next element of each source; None once a source is at its end."""
        parts: list[Any] = []
        for number, source in enumerate(() if self._over else self._sources):
            try:
                block = source.read(1)
            except Exception:
                # The element that raised is lost, and so are its partners. Otherwise
                # each later element would get the partner of the one before it.
                self._pass_over(number + 1)
                raise
            if not len(block):
                # As in TensorFlow, every source is read once more: a cache that is as
                # long as this source must meet its end, or it would never be complete.
                self._pass_over(number + 1)
                self._over = True
                break
            parts.append(block[0])
        return None if self._over else parts

    def _pass_over(self, first: int) -> None:
        """Passes over one element of each source from number `first` on."""
        for source in self._sources[first:]:
            with contextlib.suppress(Exception):
                source.read(1)

    def get_state(self) -> dict[str, Any]:
        return {"over": self._over, **self._positions()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._return_to(state)
        # Positions that earlier versions saved have no such key.
        self._over = state.get("over", False)


def _fill_structure(structure: object, parts: Sequence[Any]) -> Any:
    """Returns the structure with each number replaced by the part of that number."""
    # The most common structure, without a walk through it for each element.
    if type(structure) is tuple and all(type(s) is int for s in structure):
        return tuple(parts)
    return elements.map_leaves(lambda i: parts[i], structure)


@final
class _ZippedRows:
    """Reads the same row of several tables, and nests them."""

    def __init__(self, parts: Sequence[Any], structure: object) -> None:
        self._parts, self._structure = parts, structure

    def element_at(self, index: int) -> object:
        return _fill_structure(
            self._structure, [p.element_at(index) for p in self._parts]
        )

    def take(self, indices: np.ndarray, allocate: nodes.Allocate) -> object:
        taken = [p.take(indices, allocate) for p in self._parts]
        return _fill_structure(self._structure, taken)

    def slice(self, start: int, stop: int) -> object:
        return _fill_structure(
            self._structure, [p.slice(start, stop) for p in self._parts]
        )


@final
class Zip(nodes.Indexed):
    """Elements that are made of one element of each dataset.

    Attributes:
        inputs: the datasets.
        structure: the numbers of the inputs, nested as an element shall be.
    """

    inputs: tuple[nodes.Node, ...]
    structure: Any

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that ends with the shortest input."""
        rows = self.rows()
        if rows is not None:
            return nodes.RowLookup(rows, self.indices())
        return _Zipped([n.cursor() for n in self.inputs], self.structure)

    def rows(self) -> _ZippedRows | None:
        """Returns a table if every input is all rows of one, in order; else None."""
        inputs = [n for n in self.inputs if isinstance(n, nodes.Indexed)]
        parts = [n.rows() for n in inputs]
        if len(parts) < len(self.inputs) or any(p is None for p in parts):
            return None
        if not all(isinstance(n.indices(), cursors.Count) for n in inputs):
            return None
        return _ZippedRows(parts, self.structure)

    def indices(self) -> cursors.Cursor:
        """Returns the numbers of the rows, as many as the shortest input has."""
        length = self.cardinality
        return cursors.Count(sys.maxsize if length == nodes.INFINITE else length)

    @property
    def cardinality(self) -> int:
        """Returns the cardinality of the shortest input."""
        return nodes.shortest_cardinality([n.cardinality for n in self.inputs])

    def _spec(self) -> elements.Spec:
        made: elements.Spec = _fill_structure(
            self.structure, [n.spec for n in self.inputs]
        )
        return made


@final
class _Chained(cursors.Cursor):
    """Reads one input to its end, then opens the next."""

    def __init__(self, inputs: Sequence[nodes.Node]) -> None:
        self._inputs = inputs
        self._turn = 0
        self._source = inputs[0].cursor()
        # The shuffles of inputs that are not open have no cursor to save their state.
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
class Concatenate(nodes.Node):
    """The elements of one dataset after the other."""

    inputs: tuple[nodes.Node, ...]
    makes_new = None

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads each input to its end."""
        return _Chained(self.inputs)

    @property
    def cardinality(self) -> int:
        """Returns the sum of the inputs' cardinalities."""
        found = [n.cardinality for n in self.inputs]
        if nodes.INFINITE in found:
            return nodes.INFINITE
        return nodes.UNKNOWN if nodes.UNKNOWN in found else sum(found)

    def _spec(self) -> elements.Spec:
        found = self.inputs[0].spec
        for other in self.inputs[1:]:
            found = join_specs(found, other.spec)
        return found


def join_specs(a: object, b: object) -> elements.Spec:
    """Returns the spec that elements of both specs fit.

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
    return elements.map_specs(lambda s: mapping.merge_specs(s, next(others)), a)


@final
class _OpenDataset:
    """A dataset that an interleave has open.

    Attributes:
        before: the position of the outer source before the element it was made of.
        place: its number among all datasets that were opened; its seeds follow it.
        source: its cursor.
    """

    def __init__(self, before: object, place: int, source: cursors.Cursor) -> None:
        self.before, self.place, self.source = before, place, source


@final
class _Interleaved(cursors.Cursor):
    """Takes a block of elements from each open dataset in turn."""

    def __init__(self, node: Interleave) -> None:
        self._node = node
        self._source = node.parent.cursor()
        self._slots: list[_OpenDataset | None] = [None] * node.cycle
        self._turn = self._given = self._opened = 0
        self._over = False
        self._pass = seeds.RandomPass(node.order)

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not (self._over and not any(self._slots)):
            # Three cases: an open dataset gives its block; an empty slot is filled with
            # the next dataset and gives its block in the next round of this loop; and
            # once there are no more datasets, an empty slot is passed over.
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
        """Adds elements of an open dataset to `found`, until its turn is over."""
        wanted = count - len(found)
        if self._node.block:
            wanted = min(wanted, self._node.block - self._given)
        more = slot.source.read(wanted)
        found.extend(more)
        self._given += len(more)
        # The dataset has ended; its slot is filled when its turn comes again.
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
        """Opens the dataset of the next element; None if there is no element."""
        seed, number = self._pass.begin()
        before = self._source.get_state()
        block = self._source.read(1)
        if not len(block):
            self._over = True
            return None
        plan = plan_from(self._node.fn, block[0])
        # Each dataset gets seeds of its own, the same whenever this pass is repeated.
        plan = seeds.reseed(plan, seed, number, place)
        return _OpenDataset(before, place, plan.cursor())

    def get_state(self) -> dict[str, Any]:
        return {
            **self._pass.get_state(),
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
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._pass.set_state(state)
        self._opened = state["opened"]
        if len(state["slots"]) != len(self._slots):
            # The default cycle is the number of cores, and the position may come from
            # another machine.
            self._slots = [None] * len(state["slots"])
        for index, saved in enumerate(state["slots"]):
            if saved is None:
                self._slots[index] = None
                continue
            # Make the same dataset again, of the element that it was made of.
            self._source.set_state(saved["before"])
            slot = self._open(saved["place"])
            if slot is None:
                raise ValueError(
                    "The position was saved from a dataset with more elements than "
                    "this one has."
                )
            slot.source.set_state(saved["source"])
            self._slots[index] = slot
        # At last: opening the datasets above has moved the source.
        self._source.set_state(state["source"])
        self._turn, self._given = state["turn"], state["given"]
        self._over = state["over"]

    def close(self) -> None:
        for slot in self._slots:
            if slot is not None:
                slot.source.close()
        self._source.close()


def plan_from(fn: Callable[..., Any], element: object) -> nodes.Node:
    """Calls a user's function and returns the plan of the dataset that it made.

    Raises:
        TypeError: it did not return a dataset.
    """
    return plan_of(mapping.call(fn, element), "map_func")


def plan_of(made: object, what: str) -> nodes.Node:
    """Returns the plan of a dataset that the function `what` made.

    Raises:
        TypeError: `made` is no dataset.
    """
    node = getattr(made, "_node", None)
    if not isinstance(node, nodes.Node):
        raise TypeError(
            f"The `{what}` argument must return a `Dataset` object, received "
            f"{type(made).__name__}."
        )
    return node


@final
class Interleave(nodes.Unary, nodes.ChangedByReading):
    """The elements of many datasets, a few from each in turn.

    Attributes:
        fn: returns a dataset for an element.
        cycle: how many datasets are open at a time.
        block: how many elements are taken from one before the next has its turn; 0
            takes them all.
        order: numbers the passes, and gives their seeds.
    """

    fn: Callable[..., Any]
    cycle: int
    block: int
    order: seeds.Order = dataclasses.field(default_factory=seeds.draw_order)
    samples_spec = True
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that takes elements from each dataset in turn."""
        return _Interleaved(self)

    def make_sample(self) -> nodes.Node:
        """Returns a copy whose passes are not counted."""
        return dataclasses.replace(self, order=self.order.separate_copy())

    def sample(self) -> nodes.Node:
        """Returns the plan of the dataset that the function makes of some element."""
        element = nodes.first_element(self.parent)
        if element is None:
            element = self.parent.example()
        return plan_from(self.fn, element)

    def _spec(self) -> elements.Spec:
        return mapping.mapped_spec(lambda e: plan_from(self.fn, e).spec, self.parent)

    def __str__(self) -> str:
        return "FlatMap" if not self.block else f"Interleave({self.cycle})"


def default_cycle() -> int:
    """Returns how many datasets `interleave` opens by default: one per core."""
    return os.cpu_count() or 1


def structure_of(datasets: object) -> tuple[tuple[nodes.Node, ...], Any]:
    """Returns the plans of nested datasets, and the nest with their numbers.

    Raises:
        TypeError: something in the nest is not a dataset. Lists are not allowed, since
            they are arrays everywhere else.
    """
    found: list[nodes.Node] = []

    def add(x: object) -> int:
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

    def number_datasets(x: object) -> object:
        if elements.is_structure(x):
            return nest.rebuild(x, [number_datasets(c) for c in nest.children(x)])
        return add(x)

    structure = number_datasets(datasets)
    return tuple(found), structure


def check_alike(inputs: Sequence[nodes.Node], what: str) -> None:
    """Raises `TypeError` unless all inputs have elements of one structure and type."""
    try:
        found = [n.spec for n in inputs]
    except Exception:
        # A user's function fails for the first element. Iterating raises its error,
        # where it belongs, unless `ignore_errors` hides it.
        return
    for number, spec in enumerate(found):
        try:
            join_specs(found[0], spec)
        except TypeError:
            raise TypeError(
                f"`{what}` must have elements of the same structure and types: those "
                f"of dataset 0 are {found[0]}, those of dataset {number} are {spec}."
            ) from None
