"""`group_by_window`: makes a dataset of each group of elements with the same key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, nodes, seeds
from unisono._src.input.stages import mapping, mixing

# The number of an element in the source, and the element.
_Entry = tuple[int, Any]


def integer_of(made: Any, what: str) -> int:
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
        self._trail = cursors.Trail(self._source, cursors.BLOCK)
        self._groups: dict[int, list[_Entry]] = {}
        # By key; the user's function is asked once
        # for each. It is not part of a position.
        self._sizes: dict[int, int] = {}
        self._over = False
        self._key = 0
        self._open: list[_Entry] = []
        self._inner: cursors.Cursor | None = None
        self._begun, self._seed, self._number = 0, 0, -1

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
            index = self._trail.read_so_far
            one = self._trail.read(1)
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

    def _begin_pass(self) -> None:
        """Takes the seed and the number of this pass, once."""
        if self._number < 0:
            order = self._node.order
            self._seed, self._number = order.seed, order.begin()

    def _begin(self, key: int, entries: list[_Entry]) -> None:
        """Opens the dataset that a group becomes."""
        self._begin_pass()
        self._key, self._open = key, entries
        # Elements that left in earlier groups are needed by no position any more.
        self._trail.forget_before(
            min(self._needed_indices(), default=self._trail.read_so_far)
        )
        plan = self._node.make_plan(key, [e for _, e in entries])
        # Each group gets seeds of its own, the same whenever this pass is repeated.
        plan = seeds.reseed(plan, self._seed, self._number, self._begun)
        self._inner = plan.cursor()
        self._begun += 1

    def _needed_indices(self) -> list[int]:
        """Returns the numbers of all elements that a state may need again."""
        groups = [*self._groups.values(), self._open]
        return [index for group in groups for index, _ in group]

    def get_state(self) -> dict[str, Any]:
        self._begin_pass()
        end = self._trail.read_so_far
        groups = [[k, [i for i, _ in entries]] for k, entries in self._groups.items()]
        inner = None if self._inner is None else self._inner.get_state()
        return {
            "over": self._over,
            "groups": groups,
            "open": [self._key, [i for i, _ in self._open], inner],
            "end": end,
            "trail": self._trail.position_before(
                min(self._needed_indices(), default=end)
            ),
            # `set_state` begins the open group again, which counts it.
            "begun": self._begun - (inner is not None),
            "seed": self._seed,
            "pass": self._number,
            "passes": self._node.order.passes,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._begun = state["begun"]
        self._seed, self._number = state["seed"], state["pass"]
        self._node.order.resume(self._seed, state["passes"])
        self._trail.return_to(state["trail"])
        key, numbers, inner = state["open"]
        wanted = {i for _, group in state["groups"] for i in group} | set(numbers)
        # The key function is not called again: the
        # position tells the group of each element.
        again = self._trail.read_again(state["end"])
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
@dataclasses.dataclass(frozen=True, eq=False)
class GroupByWindow(nodes.Unary, nodes.Disturbed):
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
    told: Any = None
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

    def _spec(self) -> Any:
        if self.told is not None:
            return self.told
        return mapping.mapped_spec(lambda e: self.make_plan(0, [e]).spec, self.parent)
