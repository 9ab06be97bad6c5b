"""Where elements come from: arrays, ranges and Python generators."""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors, nest
from unisono._src.input.plan import cursors, elements, nodes

_HELPERS = 3
_WORTH_A_THREAD = 4 << 20
_CORES = os.cpu_count() or 1


@final
class Table(nodes.Rows):
    """Arrays whose first axis counts the elements; through rows none can be changed."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = elements.map_leaves(elements.frozen, arrays)
        # The array, where there is one and no structure around it.
        self.only = self._arrays if type(self._arrays) is np.ndarray else None

    def at(self, index: int) -> Any:
        """One element: a row of each array."""
        return elements.map_leaves(lambda x: x[index], self._arrays)

    def take(self, indices: np.ndarray, blank: nodes.Blank) -> Any:
        """Rows gathered into new arrays; the indices must be valid."""
        return elements.map_leaves(lambda x: _gathered(x, indices, blank), self._arrays)

    def slice(self, start: int, stop: int) -> Any:
        """Views of neighbouring rows."""
        return elements.map_leaves(lambda x: x[start:stop], self._arrays)


def _gathered(x: np.ndarray, indices: np.ndarray, blank: nodes.Blank) -> np.ndarray:
    """Rows in other memory; large ones by several threads."""
    out = blank((len(indices), *x.shape[1:]), x.dtype)
    helpers = min(_HELPERS, _CORES - 1, out.nbytes // _WORTH_A_THREAD)
    if helpers < 1 or x.dtype.kind == "O":
        return x.take(indices, 0, out, "clip")
    edges = np.linspace(0, len(indices), helpers + 2).astype(int).tolist()

    def fill(start: int, stop: int) -> None:
        # With "clip" NumPy writes to `out` directly; the indices are valid.
        x.take(indices[start:stop], 0, out[start:stop], "clip")

    parts = list(itertools.pairwise(edges))
    threads = [threading.Thread(target=fill, args=part) for part in parts[1:]]
    for thread in threads:
        thread.start()
    fill(*parts[0])
    for thread in threads:
        thread.join()
    return out


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Tensors(nodes.Indexed):
    """One element."""

    element: Any
    cardinality = 1

    def cursor(self) -> cursors.Cursor:
        """The one element."""
        return nodes.Lookup(self.rows(), self.indices())

    def rows(self) -> Table:
        """One row."""
        return Table(
            elements.map_leaves(lambda x: elements.as_array(x)[None], self.element)
        )

    def indices(self) -> cursors.Cursor:
        """The one row."""
        return cursors.Count(1)

    def _spec(self) -> Any:
        return elements.spec_of(self.element)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Slices(nodes.Indexed):
    """The rows of arrays."""

    arrays: Any
    size: int

    @classmethod
    def of(cls, tensors: Any) -> Slices:
        """Check and convert what the user gave.

        Raises:
            ValueError: an array has no first axis, or the sizes differ.
        """
        arrays = elements.map_leaves(elements.to_array, tensors)
        found: dict[int, str] = {}
        for path, x in elements.paths(arrays):
            if np.ndim(x) == 0:
                raise ValueError(
                    f"Cannot slice {path or 'the tensor'}: it is a single value. "
                    "from_tensor_slices takes arrays with one row per element; for "
                    "one element use from_tensors."
                )
            found.setdefault(len(x), path)
        if not found:
            raise ValueError("Invalid `element`. `element` should not be empty.")
        if len(found) > 1:
            told = ", ".join(f"{p or 'array'}: {n}" for n, p in found.items())
            raise ValueError(
                "Dimensions are not compatible: from_tensor_slices needs the same "
                f"number of rows in every array, received {told}."
            )
        return cls(arrays, next(iter(found)))

    def cursor(self) -> cursors.Cursor:
        """Row after row."""
        return nodes.Lookup(self.rows(), self.indices())

    def rows(self) -> Table:
        """The arrays."""
        return Table(self.arrays)

    def indices(self) -> cursors.Cursor:
        """Every row."""
        return cursors.Count(self.size)

    @property
    def cardinality(self) -> int:
        """The number of rows."""
        return self.size

    def _spec(self) -> Any:
        return elements.map_leaves(
            lambda x: specs.TensorSpec(x.shape[1:], x.dtype), self.arrays
        )

    def __str__(self) -> str:
        return f"Slices({self.size})"


@final
class _Steps:
    """An arithmetic progression as rows."""

    def __init__(self, start: int, step: int, dtype: np.dtype) -> None:
        self._start, self._step, self._dtype = start, step, dtype

    def at(self, index: int) -> Any:
        return self._dtype.type(self._start + index * self._step)

    def take(self, indices: np.ndarray, blank: nodes.Blank = np.empty) -> Any:
        return (self._start + indices * self._step).astype(self._dtype)

    def slice(self, start: int, stop: int) -> Any:
        return self.take(np.arange(start, stop))


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Range(nodes.Indexed):
    """An arithmetic progression of integers.

    Attributes:
        is_endless: whether it is as long as whatever it is paired with; `stop` is then
            so large that no one counts to it.
    """

    start: int
    stop: int
    step: int
    dtype: np.dtype
    is_endless: bool = False

    def cursor(self) -> cursors.Cursor:
        """Number after number."""
        return nodes.Lookup(self.rows(), self.indices())

    def rows(self) -> _Steps:
        """The numbers, computed when asked for."""
        return _Steps(self.start, self.step, self.dtype)

    def indices(self) -> cursors.Cursor:
        """Every number."""
        return cursors.Count(self.stop if self.is_endless else self.cardinality)

    @property
    def cardinality(self) -> int:
        """How many numbers."""
        if self.is_endless:
            return nodes.INFINITE
        return len(range(self.start, self.stop, self.step))

    def _spec(self) -> Any:
        return specs.TensorSpec((), self.dtype)

    def __str__(self) -> str:
        step = f", {self.step}" if self.step != 1 else ""
        return f"Range({self.start}, {self.stop}{step})"


@dataclasses.dataclass(frozen=True, eq=False)
class Listed(nodes.Node):
    """Elements that are there already, in a tuple."""

    items: tuple[Any, ...]

    def cursor(self) -> cursors.Cursor:
        """One after the other."""
        return cursors.Iterated(self.items.__iter__)

    @property
    def cardinality(self) -> int:
        """How many there are."""
        return len(self.items)

    def _spec(self) -> Any:
        return elements.spec_of(self.items[0])


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Generated(nodes.Node):
    """What a Python generator yields.

    Attributes:
        make: called for every iteration; gives an iterable.
        signature: the spec of an element, or None to take what comes.
    """

    make: Callable[[], Iterable[Any]]
    signature: Any = None
    size: int = nodes.UNKNOWN
    # Copied: a generator may fill the same array again and again.
    makes_new = True

    @property
    def samples_spec(self) -> bool:  # type: ignore[override]
        """Whether no signature was given."""
        return self.signature is None

    def cursor(self) -> cursors.Cursor:
        """Start the generator again."""
        return cursors.Iterated(self._elements)

    def _elements(self) -> Iterator[Any]:
        if self.signature is None:
            for element in self.make():
                yield elements.map_leaves(elements.owned, elements.convert(element))
            return
        for element in self.make():
            yield elements.map_leaves(elements.owned, conform(element, self.signature))

    @property
    def cardinality(self) -> int:
        """Unknown unless the source told it."""
        return self.size

    def _spec(self) -> Any:
        return first_spec(self) if self.signature is None else self.signature


def first_spec(node: nodes.Node) -> Any:
    """The spec of the first element.

    Raises:
        ValueError: there is none.
    """
    element = nodes.first(node)
    if element is None:
        raise ValueError(
            "Cannot tell the element_spec of an empty iterable; give it with "
            "Dataset.from_generator(..., output_signature=...)."
        )
    return elements.spec_of(element)


def conform(element: Any, signature: Any) -> Any:
    """An element that a generator yielded, converted to its declared types.

    Raises:
        InvalidArgumentError: it has another structure, type or shape.
    """
    if elements.is_structure(signature):
        given = element
        if isinstance(signature, tuple) and isinstance(given, list):
            given = tuple(given)
        wanted = [path for path, _ in elements.paths(signature)]
        found = [path for path, _ in elements.paths(given)]
        is_tuple = isinstance(signature, tuple) and isinstance(given, tuple)
        if is_tuple and len(given) == len(signature):
            parts = zip(signature, given, strict=True)
            return nest.rebuild(signature, [conform(p, spec) for spec, p in parts])
        if wanted != found or isinstance(signature, tuple):
            raise errors.InvalidArgumentError(
                "The generator yielded an element of another structure than its "
                f"signature {signature!r}: {element!r}."
            )
        keyed = {k: conform(given[k], s) for k, s in signature.items()}
        return keyed
    try:
        array = elements.as_array(elements.to_array(element))
        if array.dtype != signature.dtype:
            array = array.astype(signature.dtype)
    except (TypeError, ValueError) as e:
        raise errors.InvalidArgumentError(
            "The generator yielded an element that cannot be converted to the expected "
            f"type {np.dtype(signature.dtype).name}: {element!r}."
        ) from e
    if not signature.fits(array.shape):
        raise errors.InvalidArgumentError(
            f"The generator yielded an element of shape {array.shape} where an element "
            f"of shape {signature.shape} was expected."
        )
    return array.item() if array.dtype.kind == "O" and not array.ndim else array
