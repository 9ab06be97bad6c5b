"""Sources that hold or compute their elements: arrays, ranges, Python generators."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import dtypes, errors, nest
from unisono._src.input.plan import cursors, elements, first_elements, nodes

# At most this many threads help to copy the rows of a batch.
_MOST_HELPERS = 3
# A thread helps only with this many bytes: for fewer, starting it costs more than it
# saves.
_BYTES_PER_HELPER = 4 << 20
_CORES = os.cpu_count() or 1


# The end of an error about a spec.
NO_ELEMENTS = (
    "an empty iterable; give it with Dataset.from_generator(..., output_signature=...)."
)


@final
class Table(nodes.Rows):
    """Rows of arrays whose first axis counts the elements.

    The rows are read-only, so that no one can change the arrays through them.
    """

    def __init__(self, arrays: object) -> None:
        self._arrays = elements.map_leaves(elements.freeze, arrays)
        # The array itself, if there is only one without a structure around it.
        self.only = self._arrays if type(self._arrays) is np.ndarray else None
        # The arrays of a plain tuple or dict without other structures in it.
        given = self._arrays
        is_plain = type(given) in (tuple, dict)
        parts = nest.children(given) if is_plain else ()
        self._flat = given if set(map(type, parts)) == {np.ndarray} else None

    def element_at(self, index: int) -> object:
        """Returns one element: a row of each array."""
        flat = self._flat
        if type(flat) is tuple:
            return tuple([x[index] for x in flat])
        if flat is not None:
            return {key: x[index] for key, x in flat.items()}
        return elements.map_leaves(lambda x: x[index], self._arrays)

    def take(self, indices: np.ndarray, allocate: nodes.Allocate) -> object:
        """Returns rows as a batch in new arrays; the indices must be valid."""
        return elements.map_leaves(
            lambda x: _gather_rows(x, indices, allocate), self._arrays
        )

    def slice(self, start: int, stop: int) -> object:
        """Returns views of consecutive rows."""
        return elements.map_leaves(lambda x: x[start:stop], self._arrays)


def _gather_rows(
    x: np.ndarray, indices: np.ndarray, allocate: nodes.Allocate
) -> np.ndarray:
    """Returns rows in other memory; several threads copy large ones."""
    out = allocate((len(indices), *x.shape[1:]), x.dtype)
    helpers = min(_MOST_HELPERS, _CORES - 1, out.nbytes // _BYTES_PER_HELPER)
    # Threads do not help with objects: copying those needs Python's lock.
    if helpers < 1 or x.dtype.kind == "O":
        return x.take(indices, 0, out, "clip")
    # One part for each helper, and one for this thread.
    edges = np.linspace(0, len(indices), helpers + 2).astype(int).tolist()

    def fill(start: int, stop: int) -> None:
        # With "raise", the default, NumPy would fill a copy of `out` first. The indices
        # are valid, so "clip" never clips.
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
class Tensors(nodes.RowSource):
    """A source of one element."""

    element: Any
    cardinality = 1

    def rows(self) -> Table:
        """Returns the element as a table of one row."""
        return Table(
            elements.map_leaves(lambda x: elements.as_array(x)[None], self.element)
        )

    def _spec(self) -> elements.Spec:
        return elements.spec_of(self.element)


@final
class Slices(nodes.RowSource):
    """A source whose elements are the rows of arrays."""

    arrays: Any
    size: int

    @classmethod
    def of(cls, tensors: object) -> Slices:
        """Returns the source for arrays that a user gave, after checking them.

        Raises:
            ValueError: an array has no first axis, sizes differ, or there is no array.
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

    def rows(self) -> Table:
        """Returns the arrays as a table."""
        return Table(self.arrays)

    @property
    def cardinality(self) -> int:
        """Returns the number of rows."""
        return self.size

    def _spec(self) -> elements.Spec:
        return elements.map_specs(
            lambda x: specs.TensorSpec(x.shape[1:], x.dtype), self.arrays
        )

    def __str__(self) -> str:
        return f"Slices({self.size})"


@final
class _Steps:
    """The rows of an arithmetic progression."""

    def __init__(self, start: int, step: int, dtype: np.dtype) -> None:
        self._start, self._step, self._dtype = start, step, dtype
        # Whether the first 2**40 numbers may leave the 64 bits, where NumPy would go
        # on at the other end.
        self._is_far = abs(start) + abs(step) * 2**40 > 2**62

    def element_at(self, index: int) -> object:
        number = self._start + index * self._step
        try:
            return self._dtype.type(number)
        except OverflowError:
            _check_fits(number)
            # A smaller type takes the lowest bits, as in `take` and in TensorFlow.
            return np.int64(number).astype(self._dtype)

    def take(self, indices: np.ndarray, allocate: nodes.Allocate = np.empty) -> object:
        if self._is_far and indices.size:
            for index in (indices.min(), indices.max()):
                _check_fits(self._start + int(index) * self._step)
        return (self._start + indices * self._step).astype(self._dtype)

    def slice(self, start: int, stop: int) -> object:
        return self.take(np.arange(start, stop))


def _check_fits(number: int) -> None:
    """Raises `ValueError` if a number does not fit into 64 bits."""
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"The number {number} of a dataset does not fit into 64 bits.")


@final
class Range(nodes.Indexed):
    """A source of integers in an arithmetic progression.

    Attributes:
        is_endless: whether it is as long as the dataset that it is zipped with; `stop`
            is then so large that no one counts to it.
    """

    start: int
    stop: int
    step: int
    dtype: np.dtype
    is_endless: bool = False

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over the numbers, in order."""
        return nodes.RowLookup(self.rows(), self.indices())

    def rows(self) -> _Steps:
        """Returns the numbers as rows, computed when they are read."""
        return _Steps(self.start, self.step, self.dtype)

    def indices(self) -> cursors.Cursor:
        """Returns a cursor over the numbers of all rows."""
        # `cardinality` would be `INFINITE`, which is -1.
        return cursors.Count(self.stop if self.is_endless else self.cardinality)

    @property
    def cardinality(self) -> int:
        """Returns how many numbers there are."""
        if self.is_endless:
            return nodes.INFINITE
        return len(range(self.start, self.stop, self.step))

    def _spec(self) -> elements.Spec:
        return specs.TensorSpec((), self.dtype)

    def __str__(self) -> str:
        step = f", {self.step}" if self.step != 1 else ""
        return f"Range({self.start}, {self.stop}{step})"


class Listed(nodes.Node):
    """A source of elements that are already in a tuple."""

    items: tuple[Any, ...]

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over the elements, in order."""
        return cursors.IteratorCursor(self.items.__iter__)

    @property
    def cardinality(self) -> int:
        """Returns the length of the tuple."""
        return len(self.items)

    def _spec(self) -> elements.Spec:
        return elements.spec_of(self.items[0])


@final
class Generated(nodes.Node):
    """A source of the elements that a Python generator yields.

    Attributes:
        make: called for every iteration; returns an iterable.
        signature: the spec of an element, or None to accept any.
        size: the number of elements, if the user gave it.
        is_exact: whether numbers of Python are refused that would be cut off.
    """

    make: Callable[[], Iterable[Any]]
    signature: elements.Spec = None
    size: int = nodes.UNKNOWN
    is_exact: bool = False
    # Elements are copied, because a generator may fill one array again and again.
    makes_new = True

    # A property in place of the base class's constant, as only the instance knows.
    @property
    def samples_spec(self) -> bool:  # type: ignore[override]
        """Whether no signature was given."""
        return self.signature is None

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that calls the generator again."""
        return first_elements.watch(self, cursors.IteratorCursor(self._elements))

    def _elements(self) -> Iterator[Any]:
        # No generator, which would end at the first element that cannot be converted.
        return map(self._convert, self.make())

    def _convert(self, element: object) -> object:
        if self.signature is None:
            return elements.copy(elements.convert(element))
        return elements.copy(conform(element, self.signature, self.is_exact))

    @property
    def cardinality(self) -> int:
        """Returns `size`: unknown unless it was given."""
        return self.size

    def _spec(self) -> elements.Spec:
        if self.signature is not None:
            return self.signature
        return nodes.first_spec(self, NO_ELEMENTS)


# Kinds of numbers, and those that they are cut off to.
_CUT = frozenset({*itertools.product("fc", "biu"), ("i", "b"), ("u", "b")})
_NUMPY = (np.ndarray, np.generic)


def conform(element: Any, signature: Any, is_exact: bool = False) -> object:
    """Returns an element that a generator yielded, converted to its declared types.

    Args:
        element: the element.
        signature: its spec.
        is_exact: whether numbers of Python are refused that would be cut off.

    Raises:
        InvalidArgumentError: it has another structure, type or shape.
    """
    if elements.is_structure(signature):
        given = element
        # As in TensorFlow, a generator may yield a list for a tuple.
        if isinstance(signature, tuple) and isinstance(given, list):
            given = tuple(given)
        wanted = [path for path, _ in elements.paths(signature)]
        found = [path for path, _ in elements.paths(given)]
        is_tuple = isinstance(signature, tuple) and isinstance(given, tuple)
        if is_tuple and len(given) == len(signature):
            parts = zip(signature, given, strict=True)
            return nest.rebuild(
                signature, [conform(p, spec, is_exact) for spec, p in parts]
            )
        if wanted != found or isinstance(signature, tuple):
            raise errors.InvalidArgumentError(
                "The generator yielded an element of another structure than its "
                f"signature {signature!r}: {element!r}."
            )
        keyed = {k: conform(given[k], s, is_exact) for k, s in signature.items()}
        return keyed
    try:
        array = elements.as_array(elements.to_array(element))
        if array.dtype != signature.dtype:
            is_cut = (array.dtype.kind, signature.dtype.kind) in _CUT
            # A list of nothing has the type of floats.
            if (signature.dtype == dtypes.string and array.size) or (
                is_cut and is_exact and not isinstance(element, _NUMPY)
            ):
                raise TypeError("as in TensorFlow, it is not converted")
            array = array.astype(signature.dtype)
    except (TypeError, ValueError) as e:
        kind = "string" if signature.dtype == dtypes.string else signature.dtype
        raise errors.InvalidArgumentError(
            "The generator yielded an element that cannot be converted to the expected "
            f"type {kind}: {element!r}."
        ) from e
    if not signature.fits(array.shape):
        raise errors.InvalidArgumentError(
            f"The generator yielded an element of shape {array.shape} where an element "
            f"of shape {signature.shape} was expected."
        )
    return array.item() if array.dtype.kind == "O" and not array.ndim else array
