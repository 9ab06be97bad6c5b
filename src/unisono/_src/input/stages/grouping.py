"""Makes datasets of groups of elements: those of one key, or neighbours."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, elements, nodes, seeds
from unisono._src.input.stages import argument_checks, batching, mapping, mixing

# The number of an element in the source, and the element.
_Entry = tuple[int, Any]


def integer_of(made: object, what: str) -> int:
    """Returns the integer that a user's function returned.

    Args:
        made: the result of the function.
        what: the name of the function's argument.

    Raises:
        ValueError: the result is no single integer.
    """
    array = np.asarray(made)
    if array.ndim or array.dtype.kind not in "iu":
        raise ValueError(
            f"Invalid `{what}`. `{what}` must return a single integer, received "
            f"{made!r}."
        )
    return int(array)


@final
class _Grouped(cursors.Cursor):
    """Reads the datasets of full groups, and of the smaller ones that are left.

    The state holds the numbers of the elements that wait in each group; `set_state`
    reads these elements again.
    """

    def __init__(self, node: GroupByWindow) -> None:
        self._node = node
        self._source = node.parent.cursor()
        self._history = cursors.PositionHistory(self._source, cursors.BLOCK)
        self._groups: dict[int, list[_Entry]] = {}
        # By key; the user's function is asked once
        # for each. It is not part of a position.
        self._sizes: dict[int, int] = {}
        self._over = False
        self._key = 0
        self._open: list[_Entry] = []
        self._inner: cursors.Cursor | None = None
        self._begun, self._pass = 0, seeds.RandomPass(node.order)

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and (self._inner or self._open_group()):
            assert self._inner is not None
            found.extend(self._inner.read(count - len(found)))
            if len(found) < count:
                self._inner.close()
                self._inner, self._open = None, []
        return found

    def _open_group(self) -> bool:
        """Opens the dataset of the next group; False if there is none."""
        while not self._over:
            index = self._history.read_so_far
            one = self._history.read(1)
            if not len(one):
                self._over = True
                break
            key = integer_of(mapping.call(self._node.key_fn, one[0]), "key_func")
            group = self._groups.setdefault(key, [])
            group.append((index, one[0]))
            if len(group) >= self._size(key):
                self._begin(key, self._groups.pop(key))
                return True
        if not self._groups:
            return False
        # The source is over: the groups that are left, smallest key first.
        first = min(self._groups)
        self._begin(first, self._groups.pop(first))
        return True

    def _size(self, key: int) -> int:
        if key not in self._sizes:
            size = integer_of(self._node.size_fn(np.int64(key)), "window_size_func")
            if size < 1:
                raise errors.InvalidArgumentError(
                    f"Window size must be greater than zero, but got {size}."
                )
            self._sizes[key] = size
        return self._sizes[key]

    def _begin(self, key: int, entries: list[_Entry]) -> None:
        """Opens the dataset that a group becomes."""
        seed, number = self._pass.begin()
        self._key, self._open = key, entries
        # Elements that left in earlier groups are needed by no position any more.
        self._history.forget_before(
            min(self._needed_indices(), default=self._history.read_so_far)
        )
        plan = self._node.make_plan(key, [e for _, e in entries])
        # Each group gets seeds of its own, the same whenever this pass is repeated.
        plan = seeds.reseed(plan, seed, number, self._begun)
        self._inner = plan.cursor()
        self._begun += 1

    def _needed_indices(self) -> list[int]:
        """Returns the numbers of all elements that a state may need again."""
        groups = [*self._groups.values(), self._open]
        return [index for group in groups for index, _ in group]

    def get_state(self) -> dict[str, Any]:
        end = self._history.read_so_far
        groups = [[k, [i for i, _ in entries]] for k, entries in self._groups.items()]
        inner = None if self._inner is None else self._inner.get_state()
        return {
            **self._pass.get_state(),
            "over": self._over,
            "groups": groups,
            "open": [self._key, [i for i, _ in self._open], inner],
            "end": end,
            "trail": self._history.position_before(
                min(self._needed_indices(), default=end)
            ),
            # `set_state` begins the open group again, which counts it.
            "begun": self._begun - (inner is not None),
            **self._history.behind_failure(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._begun = state["begun"]
        self._pass.set_state(state)
        self._history.return_to(state["trail"])
        key, numbers, inner = state["open"]
        wanted = {i for _, group in state["groups"] for i in group} | set(numbers)
        # The key function is not called again: the
        # position tells the group of each element.
        again = self._history.read_again(state["end"], state)
        found = {i: e for i, e in again if i in wanted}
        self._over = state["over"]
        self._groups = {
            k: [(i, found[i]) for i in group] for k, group in state["groups"]
        }
        self._open, self._inner = [], None
        if inner is not None:
            self._begin(key, [(i, found[i]) for i in numbers])
            assert self._inner is not None
            self._inner.set_state(inner)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
        self._source.close()


@final
class GroupByWindow(nodes.Unary, nodes.ChangedByReading):
    """The elements of the datasets that a function makes of groups.

    Attributes:
        key_fn: returns the key of an element.
        reduce_fn: takes a key and a dataset of elements, and returns a dataset.
        size_fn: returns how many elements of a key make a group.
        wrap: makes a dataset of a list of elements.
        told: the spec, if it is known; otherwise that of a group of one element.
        order: numbers the passes, and gives their seeds.
    """

    key_fn: Callable[..., Any]
    reduce_fn: Callable[[Any, Any], Any]
    size_fn: Callable[[Any], Any]
    wrap: Callable[[list[Any]], Any]
    told: elements.Spec = None
    order: seeds.Order = dataclasses.field(default_factory=seeds.draw_order)
    samples_spec = True
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads group after group."""
        return _Grouped(self)

    def make_sample(self) -> nodes.Node:
        """Returns a copy whose passes are not counted."""
        return dataclasses.replace(self, order=self.order.separate_copy())

    def make_plan(self, key: int, group: list[Any]) -> nodes.Node:
        """Returns the plan of the dataset that a group becomes.

        Raises:
            TypeError: `reduce_fn` did not return a dataset.
        """
        made = self.reduce_fn(np.int64(key), self.wrap(group))
        return mixing.plan_of(made, "reduce_func")

    def _spec(self) -> elements.Spec:
        if self.told is not None:
            return self.told
        return mapping.mapped_spec(lambda e: self.make_plan(0, [e]).spec, self.parent)


@final
class _Failed:
    """Takes the place of an element that raised."""

    def __init__(self, exception: Exception) -> None:
        self.exception = exception


@final
class _Windows(cursors.UnaryCursor):
    """Reads runs of elements, and makes a window of each."""

    def __init__(self, source: cursors.Cursor, node: Window) -> None:
        super().__init__(source)
        self._node = node
        self._history = cursors.PositionHistory(source, 64)
        # The elements that were read and belong to the next windows, and whether any
        # has raised since the beginning.
        self._pending: list[Any] = []
        self._has_failed = False
        # One at a time: a read that raises does not tell what it has passed. Rows of
        # arrays do not raise.
        plan = nodes.walk(node.parent)
        only_rows = all(
            isinstance(n, nodes.Indexed) and not n.samples_spec for n in plan
        )
        self._most = cursors.BLOCK if only_rows else 1

    def read(self, count: int) -> list[Any]:
        node = self._node
        found: list[Any] = []
        # From the first to the last element of a
        # window, with those that the stride skips.
        span = (node.size - 1) * node.stride + 1
        while len(found) < count:
            self._fill(span)
            run = self._pending[: span : node.stride]
            if not run or (node.drop and len(run) < node.size):
                break
            # Those between two windows are read, too, and left out.
            self._fill(node.shift)
            self._drop(node.shift)
            if self._has_failed:
                for element in run:
                    if isinstance(element, _Failed):
                        raise element.exception
            found.append(node.wrap(run))
        return found

    def _fill(self, count: int) -> None:
        """Reads until `count` elements wait, or the source ends.

        As in TensorFlow, an element that raises keeps its place: every window that it
        belongs to raises, and none has elements that are no neighbours.
        """
        while len(self._pending) < count:
            wanted = min(self._most, count - len(self._pending))
            try:
                found = self._history.read(wanted)
            except Exception as e:
                self._pending.append(_Failed(e))
                self._has_failed = True
                continue
            self._pending.extend(found)
            if len(found) < wanted:
                break

    def _drop(self, count: int) -> None:
        """Passes over the first elements that wait."""
        del self._pending[:count]
        self._history.forget_before(self._first_index())

    def _failures(self) -> list[tuple[int, str]]:
        """Returns the places of elements that raised, and what they raised."""
        if not self._has_failed:
            return []
        return [
            (place, f"{type(x.exception).__name__}: {x.exception}")
            for place, x in enumerate(self._pending)
            if isinstance(x, _Failed)
        ]

    def _first_index(self) -> int:
        """Returns the number of the first element that waits."""
        # The source does not count what raised.
        good = len(self._pending) - len(self._failures())
        return self._history.read_so_far - good

    def get_state(self) -> dict[str, Any]:
        state = {"trail": self._history.position_before(self._first_index())}
        failed = self._failures()
        if not failed:
            return state
        end = self._history.read_so_far
        behind = self._history.behind_failure()
        return {**state, "failed": failed, "end": end, **behind}

    def set_state(self, state: dict[str, Any]) -> None:
        self._history.return_to(state["trail"])
        self._pending = []
        self._has_failed = "failed" in state
        if self._has_failed:
            again = self._history.read_again(state["end"], state)
            self._pending = [element for _, element in again]
            for place, text in state["failed"]:
                failure = RuntimeError(f"An element of this window raised {text}")
                self._pending.insert(place, _Failed(failure))


@final
class Window(nodes.Unary):
    """Nested datasets of neighbouring elements.

    Attributes:
        size: the number of elements per window.
        shift: the distance between the beginnings of windows.
        stride: the distance between the elements of a window.
        drop: whether windows that are too short are dropped.
        wrap: makes a window of a list of elements.
    """

    size: int
    shift: int
    stride: int
    drop: bool
    wrap: Callable[[list[Any]], Any]
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads window after window."""
        return _Windows(self.parent.cursor(), self)

    def _spec(self) -> elements.Spec:
        return elements.map_specs(specs.DatasetSpec, self.parent.spec)

    def example(self) -> object:
        """Returns a window of one element."""
        return self.wrap([self.parent.example()])

    @property
    def cardinality(self) -> int:
        """Returns how many windows there are, as far as the plan tells."""
        inner = self.parent.cardinality
        if inner <= 0:
            return inner
        if self.drop:
            span = (self.size - 1) * self.stride + 1
            return max(0, (inner - span) // self.shift + 1)
        return -(-inner // self.shift)

    def __str__(self) -> str:
        return f"Window({self.size})"


@final
class ConstantFunction:
    """A function that returns one number; a class, so that it can be pickled."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, _: object) -> int:
        return self._number

    def __str__(self) -> str:
        return f"always {self._number}"


@final
class Buckets:
    """Finds the bucket of an element, and makes a batch of a full bucket."""

    def __init__(
        self,
        length: Callable[..., Any],
        edges: Sequence[int],
        sizes: Sequence[int],
        to_edge: bool,
        drop: bool,
        derive: Callable[[nodes.Node], Any],
    ) -> None:
        if len(sizes) != len(edges) + 1:
            raise ValueError(
                "`len(bucket_batch_sizes)` must equal `len(bucket_boundaries) + 1` but "
                f"`len(bucket_batch_sizes)={len(sizes)}` and "
                f"`len(bucket_boundaries)={len(edges)}`."
            )
        self._length, self._edges, self._sizes = length, edges, sizes
        self._to_edge, self._drop, self._derive = to_edge, drop, derive
        # Shapes and values, unless elements are stacked as they are.
        self.padding: tuple[Any, Any] | None = None

    def key(self, *parts: object) -> int:
        """Returns the bucket of an element.

        Raises:
            InvalidArgumentError: it is too long to be padded to a boundary.
        """
        length = integer_of(self._length(*parts), "element_length_func")
        # A length that equals a boundary belongs to
        # the bucket behind it, as in TensorFlow.
        bucket = bisect.bisect_right(self._edges, length)
        if self._to_edge and bucket == len(self._edges):
            raise errors.InvalidArgumentError(
                "When pad_to_bucket_boundary=True, elements must have length < "
                f"max(bucket_boundaries): there is one of length {length}."
            )
        return bucket

    def size(self, bucket: Any) -> int:
        """Returns how many elements of a bucket make a batch."""
        return int(self._sizes[bucket])

    def batch(self, bucket: Any, group: Any) -> object:
        """Returns a dataset of one batch, made of the elements of a bucket."""
        size = self._sizes[bucket]
        if self.padding is None:
            return group.batch(size, self._drop)
        shapes, values = self.padding
        if self._to_edge:
            # A bucket holds lengths below its boundary.
            longest = self._edges[bucket] - 1
            shapes = elements.map_leaves(lambda s: _fill_sizes(s, longest), shapes)
        plan = argument_checks.plan(group, "group")
        return self._derive(
            batching.PaddedBatch(plan, size, self._drop, shapes, values)
        )


def _fill_sizes(spec: Any, size: int) -> object:
    """Returns the padded shape with every size that is not fixed set to `size`."""
    return type(spec)([size if n is None else n for n in spec.shape], spec.dtype)
