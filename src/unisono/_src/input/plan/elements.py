"""Elements of a dataset: nested structures of host arrays.

Tuples, named tuples and mappings are structure; a list is an array, as in tf.data. A
None in a structure stays None. The leaves are NumPy arrays with TensorFlow's element
types: a Python integer is int32, a Python float is float32, and text is `bytes`, or an
array of `bytes` objects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from unisono._src.execution import specs
from unisono._src.foundation import errors, host_numbers, nest
from unisono._src.foundation.tensor_shape import TensorShape

_INT32 = np.iinfo(np.int32)
_TEXT = np.dtype(object)
# The specs of an element: of one array, or nested like the element.
Spec = specs.TypeSpec | tuple[Any, ...] | Mapping[Any, Any] | None
# NumPy's letters for bool, signed, unsigned, float and complex.
_NUMBER_KINDS = "biufc"
# The class of arrays that users get. The leaves of elements inside a plan are plain.
HostArray = host_numbers.HostArray
# What most leaves are.
_LEAVES = (np.ndarray, np.generic, bytes)


def as_array(x: object) -> np.ndarray:
    """Returns a leaf of an element as an array.

    `bytes` become an array of one object, because NumPy would cut them at zero bytes.
    """
    if isinstance(x, bytes):
        array = np.empty((), object)
        array[()] = x
        return array
    return np.asarray(x)


def to_plain(x: object) -> Any:
    """Returns a NumPy array, or a NumPy scalar or `bytes` for shape ()."""
    array = as_array(x)
    return array[()] if array.ndim == 0 else array


def is_dataset(x: object) -> bool:
    """Whether a leaf of an element is itself a dataset, as `window` makes them."""
    return hasattr(type(x), "_unisono_dataset")


def is_structure(x: object) -> bool:
    """Whether `x` has components. A list has none: it is one array."""
    # The exact types first: `isinstance` of an abstract class such as Mapping is slow.
    kind = type(x)
    if kind is tuple or kind is dict:
        return True
    if issubclass(kind, _LEAVES):
        return False
    return isinstance(x, (tuple, Mapping)) and kind is not TensorShape


def map_leaves(fn: Callable[[Any], Any], element: object) -> Any:
    """Applies `fn` to every leaf of an element, and returns the same structure.

    >>> map_leaves(lambda x: x + 1, {"a": 1, "b": (2, 3)})
    {'a': 2, 'b': (3, 4)}
    """
    if type(element) is tuple:
        # Without a call for each leaf: this runs for every element.
        return tuple(
            [fn(c) if isinstance(c, _LEAVES) else map_leaves(fn, c) for c in element]
        )
    if is_structure(element):
        parts = [map_leaves(fn, c) for c in nest.children(element)]
        return nest.rebuild(element, parts)
    return None if element is None else fn(element)


def map_specs(fn: Callable[[Any], specs.TypeSpec], like: object) -> Spec:
    """Applies `fn`, which makes specs, to every leaf; returns the same structure."""
    made: Spec = map_leaves(fn, like)
    return made


def leaves(element: object) -> Iterator[Any]:
    """Yields every leaf of an element, depth first."""
    if is_structure(element):
        for child in nest.children(element):
            yield from leaves(child)
    elif element is not None:
        yield element


def paths(element: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every leaf of an element after its path in the structure.

    >>> list(paths({"a": 1, "b": (2, 3)}))
    [("['a']", 1), ("['b'][0]", 2), ("['b'][1]", 3)]
    """
    if isinstance(element, Mapping):
        for key in nest.keys(element):
            yield from paths(element[key], f"{prefix}[{key!r}]")
    elif isinstance(element, tuple):
        for index, child in enumerate(element):
            yield from paths(child, f"{prefix}[{index}]")
    elif element is not None:
        yield prefix, element


def present(element: object) -> Any:
    """Returns an element as the user sees it: its arrays have `numpy`."""
    # The most frequent case is answered first: this runs for every element.
    if type(element) is np.ndarray:
        return element.view(HostArray)
    return map_leaves(_present_leaf, element)


def _present_leaf(x: object) -> object:
    """Returns one leaf as the user sees it."""
    return x if is_dataset(x) else as_array(x).view(HostArray)


def lend(element: Any) -> object:
    """Returns an element for a user's function, which may write ``x /= 255``."""
    # The exact types first, as in `is_structure`: this runs for every element.
    kind = type(element)
    if kind is np.ndarray:
        return element.view(HostArray)
    if kind is tuple:
        # A list first: that is faster than a generator, and
        # this runs for every element.
        return tuple([lend(x) for x in element])
    if kind is dict:
        return {key: lend(x) for key, x in element.items()}
    if isinstance(element, np.generic):
        return np.asarray(element).view(HostArray)
    if kind is bytes:
        return host_numbers.HostText(element)
    # A dataset is itself.
    return map_leaves(lend, element) if is_structure(element) else element


def convert(element: object) -> object:
    """Returns any structure as an element; the module lists the types.

    Raises:
        TypeError: it is None, or holds something that is no array.
    """
    if element is None:
        raise TypeError(
            "An element of a dataset must consist of arrays, received None. Does the "
            "function that makes it return a value?"
        )
    return map_leaves(to_array, element)


def convert_and_copy(element: Any, copy: Callable[[Any], Any] | None = None) -> object:
    """Returns what `convert` returns, in memory of its own.

    Args:
        element: what a function has made.
        copy: copies an array of numbers, and gives back anything else; by default
            NumPy does.
    """
    # The most frequent cases first: this runs for every element of a map.
    kind = type(element)
    if kind is HostArray or kind is np.ndarray:
        if element.dtype.kind in _NUMBER_KINDS:
            # A number cannot be changed, so it is no copy of an array.
            if not element.ndim:
                return element.view(np.ndarray)[()]
            return copy(element) if copy is not None else np.array(element)
    elif kind is tuple:
        return tuple(
            [None if x is None else convert_and_copy(x, copy) for x in element]
        )
    elif kind is dict:
        return {
            key: None if x is None else convert_and_copy(x, copy)
            for key, x in element.items()
        }
    if is_structure(element):
        return map_leaves(lambda x: convert_and_copy(x, copy), element)
    return (copy or copy_array)(convert(element))


def to_array(x: object) -> object:
    """Returns one leaf as an array with TensorFlow's element type, or as `bytes`.

    Raises:
        TypeError: it is None, or an object that is neither a number nor text.
        ValueError: it is a list whose parts differ in shape.

    >>> [str(to_array(v).dtype) for v in (1, 2.0, True, np.float64(3), [4, 5])]
    ['int32', 'float32', 'bool', 'float64', 'int32']
    """
    if type(x) is HostArray:
        x = x.view(np.ndarray) if x.ndim else x.view(np.ndarray)[()]
    if isinstance(x, (np.ndarray, np.generic)):
        return x if x.dtype.kind in _NUMBER_KINDS else _encode_text(np.asarray(x))
    if isinstance(x, (str, bytes)):
        return x.encode() if isinstance(x, str) else bytes(x)
    if isinstance(x, (bool, int, float, complex)):
        return np.asarray(x, _type_of_python(np.asarray(x)))
    if isinstance(x, (list, tuple)):
        return _convert_sequence(x)
    if x is None:
        raise TypeError("Expected an array as a part of an element, received None.")
    if is_dataset(x):
        return x
    array = np.asarray(x)
    return array if array.dtype.kind in _NUMBER_KINDS else _convert_other(array, x)


def _convert_other(array: np.ndarray, given: object) -> object:
    """Returns an array that is neither of numbers nor of NumPy text."""
    if array.dtype.kind == "V":  # NumPy sees bfloat16 and its like as raw bytes.
        return array
    if array.dtype.kind == "O" and array.ndim == 0:
        raise TypeError(
            f"Cannot convert {type(given).__name__} to an array: {given!r}. Elements "
            "consist of numbers, text, arrays of them, tuples and dicts."
        )
    return _encode_text(array)


def _convert_sequence(x: Sequence[Any]) -> object:
    """Returns a list as one array with TensorFlow's type."""
    first: Any = x
    # A list that holds itself must not loop for ever.
    while isinstance(first, (list, tuple)) and len(first) and first[0] is not first:
        first = first[0]
    if isinstance(first, (str, bytes)):
        return _encode_text(np.array(x, _TEXT))
    made = [to_array(v) for v in x] if _has_arrays(x) else x
    try:
        array = np.array(made)
    except ValueError as e:
        raise ValueError(
            f"Cannot make one array of a list whose parts differ in shape: {e}. Use a "
            "tuple for an element of several arrays."
        ) from e
    if array.dtype.kind in "OSU":
        return _encode_text(np.array(made, _TEXT))
    return array.astype(_type_of_list(x, first, array), copy=False)


def _type_of_list(x: Sequence[Any], first: object, array: np.ndarray) -> DTypeLike:
    """Returns TensorFlow's type of a list, which its first number or array decides.

    Args:
        x: the list.
        first: its first number or array.
        array: the list in the type that NumPy chooses.
    """
    told: np.dtype | None = getattr(first, "dtype", None)
    # The list holds Python numbers only: int32 or float32, as in TensorFlow.
    if told is None:
        return _type_of_python(array)
    if array.dtype.kind != "f" or all(getattr(v, "dtype", None) == told for v in x):
        return array.dtype
    # NumPy widens a list of mixed types to float64, TensorFlow does not.
    return told if told.kind == "f" else np.float32


def _has_arrays(x: Sequence[Any]) -> bool:
    """Whether a list holds arrays; a NumPy scalar does not count as one."""
    return any(hasattr(v, "__array__") and not isinstance(v, np.generic) for v in x)


def _type_of_python(array: np.ndarray) -> DTypeLike:
    """Returns TensorFlow's type for Python numbers that NumPy has made an array of."""
    if array.dtype.kind == "f":
        return np.float32
    if array.dtype.kind in "iu" and array.size:
        fits = _INT32.min <= array.min() and array.max() <= _INT32.max
        return np.int32 if fits else np.int64
    return array.dtype


def _encode_text(array: np.ndarray) -> object:
    """Returns an array whose text is `bytes` objects."""
    if array.ndim == 0 and isinstance(array.item(), (str, bytes)):
        return to_array(array.item())
    if array.dtype.kind in "US":
        array = array.astype(_TEXT)
    if array.dtype.kind != "O":
        return array
    if {*map(type, array.ravel().tolist())} == {bytes}:
        return array.copy()
    # Filled one by one: NumPy's own text types would cut text at zero bytes.
    out = np.empty(array.shape, _TEXT)
    for index in np.ndindex(array.shape):
        value = array[index]
        if type(value) is HostArray and not value.ndim:
            value = value.item()
        if not isinstance(value, (str, bytes)):
            raise TypeError(
                f"Cannot convert {type(value).__name__} to an array: {value!r}. "
                "Elements consist of numbers, text, arrays of them, tuples and dicts."
            )
        out[index] = value.encode() if isinstance(value, str) else bytes(value)
    return out


def spec_of(element: object) -> Spec:
    """Returns the exact shape and type of every array of an element."""
    return map_specs(_spec_of, element)


def _spec_of(x: Any) -> specs.TypeSpec:
    """Returns the spec of one leaf."""
    if is_dataset(x):
        return specs.DatasetSpec(x.element_spec)
    return specs.TensorSpec(np.shape(x), as_array(x).dtype)


def check_same_structure(first: object, other: object, what: str) -> None:
    """Raises `TypeError` unless two elements have the same components."""
    here = [path for path, _ in paths(first)]
    there = [path for path, _ in paths(other)]
    if here != there:
        raise TypeError(
            f"{what} must have the same components throughout; one has "
            f"{', '.join(here) or 'one array'}, another "
            f"{', '.join(there) or 'one array'}."
        )


def check_same_types(first: object, other: object, what: str) -> None:
    """Raises `TypeError` unless two elements have the same components and types."""
    check_same_structure(first, other, what)
    for (path, a), b in zip(paths(first), leaves(other), strict=True):
        if as_array(a).dtype != as_array(b).dtype:
            raise TypeError(
                f"{what} must keep its type: {path or 'it'} was "
                f"{as_array(a).dtype} and became {as_array(b).dtype}. Give the "
                "first one the type of the result, such as np.int64(0)."
            )


def columns(elements: Sequence[Any]) -> object:
    """Returns one element whose leaves are lists: one column per component."""
    first = elements[0]
    if first is None:
        return None
    if not is_structure(first):
        return list(elements)
    # The cheap comparison decides; `check_same_structure` then raises with the names.
    if isinstance(first, Mapping):
        for e in elements:
            # The exact type first, as in `is_structure`.
            is_like = type(e) is dict or isinstance(e, Mapping)
            if not is_like or e.keys() != first.keys():
                check_same_structure(first, e, "The elements of a batch")
        parts = [columns([e[key] for e in elements]) for key in nest.keys(first)]
    else:
        for e in elements:
            if not isinstance(e, tuple) or len(e) != len(first):
                check_same_structure(first, e, "The elements of a batch")
        parts = [columns(list(c)) for c in zip(*elements, strict=True)]
    return nest.rebuild(first, parts)


def stack(
    elements: Sequence[Any],
    allocate: Callable[..., np.ndarray] = np.empty,
    join: Callable[[list[Any]], np.ndarray | None] = lambda _: None,
) -> object:
    """Returns elements as one batch.

    Args:
        elements: what to stack; not empty.
        allocate: makes an array of a shape and type, to be filled.
        join: returns the batch of arrays that are in its place already, else None.

    Raises:
        InvalidArgumentError: the shapes or types of a component differ.
        TypeError: the structures differ.
    """

    def make(column: list[Any]) -> np.ndarray:
        joined = join(column)
        return _stack_column(column, allocate) if joined is None else joined

    return map_leaves(make, columns(elements))


def _stack_column(column: list[Any], allocate: Callable[..., np.ndarray]) -> np.ndarray:
    """Returns the arrays of one component as one array."""
    if is_dataset(column[0]):
        raise TypeError(
            "Elements that are datasets cannot be batched. Batch what they hold: "
            "flat_map(lambda window: window.batch(size))."
        )
    first = as_array(column[0])
    if first.ndim == 0 and first.dtype.kind in _NUMBER_KINDS:
        # Much faster on scalars than filling row by row. NumPy may choose a wider
        # type for a mixed column; the check below then names the types.
        with contextlib.suppress(ValueError):
            array = np.array(column)
            if array.ndim == 1 and array.dtype == first.dtype:
                return array
    if {*map(type, column)} == {bytes}:
        texts = allocate((len(column),), _TEXT)
        texts[:] = column
        return texts
    if set(map(type, column)) != {np.ndarray} or _have_differences(column):
        _check_column(column)
    out = allocate((len(column), *first.shape), first.dtype)
    if first.ndim:
        # One call is faster than one for each row.
        rows = out.reshape(len(column) * first.shape[0], *first.shape[1:])
        np.concatenate(column, out=rows)
        return out
    for row, x in enumerate(column):
        out[row] = as_array(x)[()]
    return out


def _have_differences(column: list[np.ndarray]) -> bool:
    """Whether arrays have different shapes or types."""
    first = column[0]
    shape, dtype = first.shape, first.dtype
    return any(x.shape != shape or x.dtype != dtype for x in column)


def _check_column(column: list[Any]) -> None:
    """Raises unless the arrays can be stacked without changing any."""
    # One look per type, not per element: a batch is large and of few types.
    if any(issubclass(kind, (tuple, Mapping)) for kind in set(map(type, column))):
        for x in column:
            check_same_structure(column[0], x, "The elements of a batch")
    shapes = {np.shape(x) for x in column}
    if len(shapes) > 1:
        raise errors.InvalidArgumentError(
            "Cannot batch elements of different shapes: "
            f"{', '.join(map(str, sorted(shapes, key=str)))}. Use padded_batch, or "
            "make the shapes equal with map."
        )
    types = {as_array(x).dtype for x in column}
    if len(types) > 1:
        raise errors.InvalidArgumentError(
            "Cannot batch elements of different types: "
            f"{', '.join(sorted(map(str, types)))}. Make the types equal with map."
        )


def common_rows(spec: Spec) -> int | None:
    """Returns the size of the first axis, if it is fixed and the same throughout."""
    found = {s.shape[0] if s.shape.rank else None for s in leaves(spec)}
    return found.pop() if len(found) == 1 else None


def blank(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Returns an array of zeros, or of empty texts."""
    if dtype.kind == "O":
        return np.full(shape, b"", object)
    return np.zeros(shape, dtype)


def freeze(x: object) -> object:
    """Returns a read-only view of an array."""
    if not isinstance(x, np.ndarray):
        return x
    view = x.view()
    view.flags.writeable = False
    return view


def copy_array(x: object) -> object:
    """Returns a copy of an array, so that changes to the original do not show."""
    return x.copy() if isinstance(x, np.ndarray) else x


def copy(element: object) -> Any:
    """Returns an element of arrays that no one else will change."""
    return map_leaves(copy_array, element)


def length(batch: object) -> int:
    """Returns the size of the first axis, which all arrays of a batch share.

    Raises:
        ValueError: an array has no axis, or there is no array.
        InvalidArgumentError: the sizes differ.
    """
    # Nearly all batches pass here; the rest of the function finds what is wrong.
    try:
        found: set[int] = {x.shape[0] for x in leaves(batch)}
    except (AttributeError, IndexError):
        found = set()
    if len(found) == 1:
        return found.pop()
    sizes: dict[int, str] = {}
    for path, x in paths(batch):
        shape = np.shape(x)
        if not shape:
            raise ValueError(
                f"The component {path or 'of the element'} is a single value and has "
                "no batch axis. Batch the dataset first: dataset.batch(size)."
            )
        sizes.setdefault(shape[0], path)
    if len(sizes) > 1:
        told = ", ".join(f"{path or 'array'}: {size}" for size, path in sizes.items())
        raise errors.InvalidArgumentError(
            "The arrays of a batch disagree in their length along the first axis "
            f"({told}). Every component needs one row per example."
        )
    if not sizes:
        raise ValueError(f"A batch has no arrays: {batch!r}. It needs at least one.")
    return next(iter(sizes))


def rows(batch: object, start: int, stop: int) -> object:
    """Returns the rows from `start` to `stop` of every array of a batch."""
    return map_leaves(lambda x: x[start:stop], batch)


def concatenate(batches: Sequence[Any]) -> object:
    """Returns batches joined along the first axis."""
    if len(batches) == 1:
        return batches[0]
    return map_leaves(np.concatenate, columns(batches))
