"""Stages that keep, count or window elements: cache, prefetch, window, scan."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.stages import (
    dataset_options,
    mapping,
    prefetch,
    returned_arrays,
)
from unisono._src.input.stages.selecting import Make

_LOG = logging.getLogger("unisono")
# A source that fails so often without one element in between is broken for good.
_LAST_STRAW = 10_000


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Prefetch(nodes.Keeping):
    """Elements read ahead in a thread."""

    size: int

    def selecting(self, make: Make) -> cursors.Cursor:
        """Rows need no thread: choosing them costs nothing."""
        if self.size == 0 or self.rows() is not None:
            return make()
        return prefetch.Ahead(make(), self.size, f"prefetch of {self}")

    def __str__(self) -> str:
        return f"Prefetch({self.size})"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class WithOptions(nodes.Keeping):
    """The same elements; carries options."""

    options: Any

    def selecting(self, make: Make) -> cursors.Cursor:
        """As they are."""
        return make()

    def __str__(self) -> str:
        return "Options"


def options_of(node: nodes.Node) -> dataset_options.Options:
    """The options that were set anywhere in a plan, merged; later ones win.

    Of several inputs the last one counts as the latest.
    """
    known: dict[int, dataset_options.Options] = {}

    def found(n: nodes.Node) -> dataset_options.Options:
        # A dataset may be the input of several others.
        if id(n) not in known:
            merged = dataset_options.Options()
            for parent in n.parents:
                merged = merged.merge(found(parent))
            if isinstance(n, WithOptions):
                merged = merged.merge(n.options)
            known[id(n)] = merged
        return known[id(n)]

    return found(node)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class AssertCardinality(nodes.Selecting):
    """The same elements; their number is given by the user."""

    expected: int
    keeps_spec = True

    def selecting(self, make: Make) -> cursors.Cursor:
        """Checked at the end."""
        return _Counted(make(), self.expected)

    @property
    def cardinality(self) -> int:
        """What the user said."""
        return self.expected


@final
class _Counted(cursors.Derived):
    kept = ("seen",)

    def __init__(self, source: cursors.Cursor, expected: int) -> None:
        super().__init__(source)
        self._expected, self._seen = expected, 0

    def read(self, count: int) -> Any:
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


@final
class _Windows(cursors.Cursor):
    """Runs of elements: lists, to be made into datasets."""

    def __init__(self, source: cursors.Cursor, node: Window) -> None:
        self._node = node
        self._trail = cursors.Trail(source, 64)
        self._source = source
        self._pending: list[Any] = []
        self._base = 0

    def read(self, count: int) -> list[Any]:
        node = self._node
        found: list[Any] = []
        span = (node.size - 1) * node.stride + 1
        while len(found) < count:
            missing = span - len(self._pending)
            if missing > 0:
                self._pending.extend(self._trail.read(missing))
            run = self._pending[: span : node.stride]
            if not run or (node.drop and len(run) < node.size):
                break
            found.append(node.wrap(run))
            self._drop(node.shift)
        return found

    def _drop(self, shift: int) -> None:
        if shift > len(self._pending):
            self._trail.read(shift - len(self._pending))
        del self._pending[:shift]
        self._base += shift
        self._trail.forget_before(min(self._base, self._trail.read_so_far))

    def get_state(self) -> dict[str, Any]:
        start = self._trail.read_so_far - len(self._pending)
        return {"trail": self._trail.before(start)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._pending = []
        self._trail.return_to(state["trail"])
        self._base = self._trail.read_so_far

    def close(self) -> None:
        self._source.close()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Window(nodes.Unary):
    """Each element is a nested dataset of neighbours.

    Attributes:
        size: elements per window.
        shift: distance of the beginnings.
        stride: distance of the elements in a window.
        drop: whether windows that are too short are dropped.
        wrap: makes what a window becomes of a list of elements.
        wrap_spec: the same of the spec of an element.
    """

    size: int
    shift: int
    stride: int
    drop: bool
    wrap: Callable[[list[Any]], Any]
    wrap_spec: Callable[[Any], Any]
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """Window after window."""
        return _Windows(self.parent.cursor(), self)

    def _spec(self) -> Any:
        return self.wrap_spec(self.parent.spec)

    def example(self) -> Any:
        """A window of one element."""
        return self.wrap([self.parent.example()])

    @property
    def cardinality(self) -> int:
        """How many windows there are."""
        inner = self.parent.cardinality
        if inner <= 0:
            return inner
        if self.drop:
            span = (self.size - 1) * self.stride + 1
            return max(0, (inner - span) // self.shift + 1)
        return -(-inner // self.shift)

    def __str__(self) -> str:
        return f"Window({self.size})"


def _saved(x: Any) -> dict[str, Any]:
    """An array as plain data."""
    array = elements.as_array(x)
    flat = array.ravel().tolist()
    if array.dtype.kind == "O":
        flat = [text.decode("latin-1") for text in flat]
    return {"type": str(array.dtype), "shape": list(array.shape), "values": flat}


def _restored(saved: dict[str, Any]) -> Any:
    flat = np.empty(len(saved["values"]), saved["type"])
    for index, value in enumerate(saved["values"]):
        flat[index] = value.encode("latin-1") if isinstance(value, str) else value
    array = flat.reshape(saved["shape"])
    return array[()] if array.ndim == 0 else array


@final
class _Scanned(cursors.Called):
    # The state passes through every element.
    sees_all = True

    def __init__(self, source: cursors.Cursor, node: Scan) -> None:
        super().__init__(source)
        self._node, self._state = node, node.initial

    def read(self, count: int) -> list[Any]:
        found, block = [], self._block(count)
        try:
            for element in block:
                self._state, out = self._node.call(self._state, element)
                found.append(returned_arrays.settled(out, element))
                del out
        except BaseException:
            self._keep(block)
            raise
        return found

    def get_state(self) -> dict[str, Any]:
        carried = [_saved(x) for x in elements.leaves(self._state)]
        return {"carried": carried, **super().get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        arrays = iter([_restored(c) for c in state["carried"]])
        self._state = elements.map_leaves(lambda _: next(arrays), self._node.initial)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Scan(nodes.Unary):
    """A function of every element and of what the call before it returned."""

    initial: Any
    fn: Callable[[Any, Any], Any]
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """Carry the state along."""
        return _Scanned(self.parent.cursor(), self)

    @property
    def cardinality(self) -> int:
        """That of the parent."""
        return self.parent.cardinality

    def call(self, state: Any, element: Any) -> tuple[Any, Any]:
        """The next state, and what becomes of an element.

        Raises:
            TypeError: the function returned something else, or a state of other types.
        """
        made = mapping.call(self.fn, (state, element))
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(
                "`scan_func` must return a pair of the new state and the output, "
                f"received {made!r}."
            )
        state_made = elements.convert(made[0])
        elements.check_same_types(state, state_made, "The state of scan")
        return state_made, elements.convert(made[1])

    def _spec(self) -> Any:
        def second(element: Any) -> Any:
            return elements.spec_of(self.call(self.initial, element)[1])

        return mapping.mapped_spec(second, self.parent)


@final
class _While(cursors.Derived):
    kept = ("over",)

    def __init__(self, source: cursors.Cursor, predicate: Callable[..., Any]) -> None:
        super().__init__(source)
        self._predicate, self._over = predicate, False

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not self._over:
            block = self._source.read(1)
            self._over = not len(block) or not mapping.truth(self._predicate, block[0])
            if not self._over:
                found.append(block[0])
        return found


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TakeWhile(nodes.Passing):
    """The elements before the first for which a predicate does not hold."""

    predicate: Callable[..., Any]

    def cursor(self) -> cursors.Cursor:
        """Stop at the first that fails."""
        return _While(self.parent.cursor(), self.predicate)

    @property
    def cardinality(self) -> int:
        """Unknown before it has run."""
        return nodes.UNKNOWN


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Opaque(nodes.Keeping):
    """The same elements; hides the batch size, as a parallel batch does."""

    def selecting(self, make: Make) -> cursors.Cursor:
        """As they are."""
        return make()

    def __str__(self) -> str:
        return str(self.parent)


def _content(x: Any) -> Any:
    array = elements.as_array(x)
    return repr(array.tolist()) if array.dtype.kind == "O" else array.tobytes()


@final
class _Unique(cursors.Cursor):
    def __init__(self, source: cursors.Cursor) -> None:
        self._source = source
        self._origin = self._source.get_state()
        self._seen: set[Any] = set()
        self._passed = 0

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            block = self._source.read(1)
            if not len(block):
                break
            self._passed += 1
            key = tuple(map(_content, elements.leaves(block[0])))
            if key not in self._seen:
                self._seen.add(key)
                found.append(block[0])
        return found

    def get_state(self) -> dict[str, Any]:
        return {"passed": self._passed, "origin": self._origin}

    def set_state(self, state: dict[str, Any]) -> None:
        self._origin = state["origin"]
        self._source.set_state(self._origin)
        self._seen, self._passed = set(), 0
        while self._passed < state["passed"] and self.read(1):
            pass

    def close(self) -> None:
        self._source.close()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Unique(nodes.Passing):
    """Elements that were not there before."""

    def cursor(self) -> cursors.Cursor:
        """Remember what was seen."""
        return _Unique(self.parent.cursor())

    @property
    def cardinality(self) -> int:
        """Unknown before it has run."""
        return nodes.UNKNOWN


@final
class _Tolerant(cursors.Derived):
    def __init__(self, source: cursors.Cursor, log: bool) -> None:
        super().__init__(source)
        self._log = log

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        failed_in_a_row = 0
        while len(found) < count:
            try:
                block = self._source.read(1)
            except Exception as e:
                failed_in_a_row += 1
                if failed_in_a_row > _LAST_STRAW:
                    raise
                if self._log:
                    _LOG.warning("Ignored an element: %s: %s", type(e).__name__, e)
                continue
            failed_in_a_row = 0
            if not len(block):
                break
            found.append(block[0])
        return found


@final
@dataclasses.dataclass(frozen=True, eq=False)
class IgnoreErrors(nodes.Passing):
    """Elements whose making raises nothing."""

    log: bool

    def cursor(self) -> cursors.Cursor:
        """Go on after an exception."""
        return _Tolerant(self.parent.cursor(), self.log)

    @property
    def cardinality(self) -> int:
        """Unknown before it has run."""
        return 0 if self.parent.cardinality == 0 else nodes.UNKNOWN
