"""Columns of a Hugging Face table as arrays, in the types that its features declare.

The tables consist of Arrow's arrays, which know their types, lengths and gaps. The
format "numpy" of `datasets` forgets some: it makes numbers of gaps, and cuts text at
zero bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import elements, loader_structures

_NAMED = (TypeError, ValueError, errors.InvalidArgumentError)


def types(features: Any) -> dict[str, Any]:
    """Arrow's type of each column, but for those that `datasets` decodes, as images."""
    kinds = {field.name: field.type for field in features.arrow_schema}
    return {name: kinds[name] for name in features if not _is_decoded(features[name])}


def row(given: Any, kinds: Mapping[str, Any]) -> Any:
    """One example, of Python's values.

    Args:
        given: what `datasets` gave.
        kinds: Arrow's types of those columns that have one.

    Raises:
        ValueError: a value is missing, or no array.
    """
    if not isinstance(given, Mapping):
        return _any_value(given)
    return {name: _value(v, repr(name), kinds.get(name)) for name, v in given.items()}


def _value(value: Any, name: str, kind: Any) -> Any:
    if kind is None:
        return _named(name, value, _any_value)
    pyarrow = sys.modules["pyarrow"]  # `datasets` has loaded it.
    column = _named(name, [value], lambda v: pyarrow.array(v, kind))
    return elements.map_leaves(lambda x: x[0], _array(column, name))


def batch(given: Any) -> Any:
    """Several examples, whose columns have types that only the values tell.

    Raises:
        ValueError: a value is no array.
        InvalidArgumentError: the examples have different shapes.
    """
    if not isinstance(given, Mapping):
        return _any_value(given)
    return {name: _named(repr(name), v, _any_column) for name, v in given.items()}


def arrays(table: Any) -> dict[str, Any]:
    """Several examples, of a table of Arrow's.

    Raises:
        ValueError: a value is missing, or no array.
        InvalidArgumentError: the examples have different shapes.
    """
    found = zip(table.column_names, table.columns, strict=True)
    return {name: _array(c.combine_chunks(), repr(name)) for name, c in found}


def spec(table: Any) -> dict[str, Any]:
    """What the examples of a table of Arrow's look like; no size of a list is told."""
    made: dict[str, Any] = elements.map_leaves(
        lambda x: specs.TensorSpec((None,) * (x.ndim - 1), x.dtype), arrays(table[:0])
    )
    return made


def _is_decoded(feature: Any) -> bool:
    if isinstance(feature, Mapping):
        return any(map(_is_decoded, feature.values()))
    inner = (
        feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    )
    if inner is not None:
        return _is_decoded(inner)
    return hasattr(feature, "decode_example") and getattr(feature, "decode", True)


class _Uneven(Exception):
    """Lists of different lengths make no array."""


def _array(column: Any, name: str, is_whole: bool = True) -> Any:
    """A column of Arrow's as one array, or as a dict of arrays.

    Args:
        column: the values.
        name: of the column, for errors.
        is_whole: whether it has one value for each row, and not for parts of rows.
    """
    column = getattr(column, "storage", column)
    if column.null_count:
        raise ValueError(
            f"The column {name} has a row without a value (null), which no array can "
            "hold. Fill it with table.map, or leave such rows out with table.filter."
        )
    if hasattr(column, "value_lengths"):
        return _lists(column, name, is_whole)
    if hasattr(column, "field"):
        fields = zip(column.type, column.flatten(), strict=True)
        return {
            f.name: _array(part, f"{name}[{f.name!r}]", is_whole) for f, part in fields
        }
    found = column.to_numpy(zero_copy_only=False)
    if found.dtype.kind in "mM":  # Dates, which no device has.
        return _named(name, column.to_pylist(), _any_column)
    # Arrow's memory is the table, which no one may write into.
    return _named(name, np.array(found), elements.convert)


def _lists(column: Any, name: str, is_whole: bool) -> Any:
    sizes = set(column.value_lengths().to_pylist())
    try:
        if len(sizes) > 1:
            raise _Uneven
        inner = _array(column.flatten(), name, False)
    except _Uneven:
        if not is_whole:
            raise
        raise _explained(column, name) from None
    size = sizes.pop() if sizes else 0
    return elements.map_leaves(
        lambda x: x.reshape(len(column), size, *x.shape[1:]), inner
    )


def _explained(column: Any, name: str) -> Exception:
    """The error for lists that do not fit together: in a row, or from row to row."""
    shapes: set[tuple[int, ...]] = set()
    for index in range(len(column)):
        try:
            found = _lists(column.slice(index, 1), name, False)
        except _Uneven:
            return ValueError(
                f"A row of the column {name} is no array: the lists in it have "
                "different lengths. Make them equal with table.map."
            )
        shapes.update(x.shape[1:] for x in elements.leaves(found))
    return errors.InvalidArgumentError(
        f"Cannot batch the column {name}, whose rows have different shapes: "
        f"{', '.join(map(str, sorted(shapes, key=str)))}. Use padded_batch, or make "
        "the shapes equal with map."
    )


def _any_value(value: Any) -> Any:
    return elements.convert(loader_structures.to_structure(value))


def _any_column(values: Any) -> Any:
    """A column of a type that only the values tell."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        values = list(values)
    if isinstance(values, list):
        return elements.stack([_any_value(v) for v in values])
    return _any_value(values)


def _named(name: str, value: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert, and name the column in what that raises."""
    try:
        return convert(value)
    except (TypeError, ValueError) as e:
        kind = type(e) if type(e) in _NAMED else ValueError
        raise kind(f"In the column {name}: {e}") from e
